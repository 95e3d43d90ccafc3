import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { CommandFailure } from './failure.ts'

/** A file or standard input to import. */
export interface ImportSource {
  /** Its name in messages. */
  readonly name: string
  readonly stream: Readable
  /** Its end looks the same if the program that writes to it was killed. */
  readonly isPipe: boolean
}

/**
 * Opens a file by its name, or standard input by `-`. As the end of a pipe does not prove that all of it arrived, the operator must
 * know the number of its rows.
 *
 * @throws {CommandFailure} if it is standard input with an unknown number of rows, or a pipe by its name
 * @throws the error of a system call; the stream reports others
 */
export async function openSource(file: string, expectedRows: number | undefined): Promise<ImportSource> {
  const isPipe = file === '-'
  if (isPipe ? expectedRows === undefined : !(await stat(file)).isFile()) {
    throw new CommandFailure(
      `The end of a pipe does not prove that all of it arrived. Import it from standard input, with the number of its rows without the header:
  inventory import - --rows "$(($(wc -l <stock.csv) - 1))"
or import a file instead. Nothing was done.`,
      exitCodes.wrongUsage,
    )
  }
  const stream = isPipe ? process.stdin : createReadStream(file)
  // Whoever reads the stream gets the error, also an earlier one.
  stream.on('error', () => {})
  return { name: isPipe ? 'standard input' : printable(file), stream, isPipe }
}
