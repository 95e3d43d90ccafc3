import { createReadStream, open } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { CommandFailure } from './failure.ts'

/** Means standard input or standard output in place of a file name. */
export const STANDARD_STREAM = '-'

/** A file, standard input or a pipe to import. */
export interface ImportSource {
  /** Its name in messages. */
  readonly name: string
  readonly stream: Readable
  /** Says why what was read may be incomplete; undefined if it is not. */
  findError(endsInNewline: boolean): Promise<string | undefined>
}

/**
 * Opens a file by its name, or standard input by `-`. The end of a pipe does not prove that all of it arrived: it looks the same if
 * the program that writes to it was killed. So the operator must know the number of its rows.
 *
 * @throws {CommandFailure} if it is a pipe of an unknown number of rows
 * @throws the error of a system call; the stream reports others
 */
export async function openSource(file: string, expectedRows: number | undefined): Promise<ImportSource> {
  const name = file === STANDARD_STREAM ? 'standard input' : printable(file)
  // Before opening it, because opening a named pipe waits for the program that writes to it.
  const before = file === STANDARD_STREAM ? undefined : await stat(file)
  const isPipe = before === undefined || before.isFIFO() || before.isCharacterDevice()
  if (isPipe && expectedRows === undefined) {
    throw new CommandFailure(
      `The end of ${name} does not prove that all of it arrived. Add the number of its rows without the header, such as
  --rows "$(($(wc -l <stock.csv) - 1))"
or import a file instead. Nothing was done.`,
      exitCodes.wrongUsage,
    )
  }
  const stream = before === undefined ? process.stdin : await openStream(file, before.isFIFO())
  // Whoever reads the stream gets the error, also an earlier one.
  stream.on('error', () => {})
  return {
    name,
    stream,
    async findError(endsInNewline) {
      if (isPipe)
        return endsInNewline ? undefined : 'its last line does not end in a newline, so it may be incomplete'
      const now = await stat(file)
      return now.size === before.size && now.mtimeMs === before.mtimeMs && now.ino === before.ino
        ? undefined
        : 'it changed while it was read'
    },
  }
}

/** A pipe that is opened as a file could not be closed while it is read. */
async function openStream(file: string, isFifo: boolean): Promise<Readable> {
  if (!isFifo) return createReadStream(file)
  return new Socket({ fd: await promisify(open)(file, 'r'), readable: true, writable: false })
}
