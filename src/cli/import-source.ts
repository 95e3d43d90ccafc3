import { createReadStream, open, type Stats } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { CommandFailure, isSystemError } from './failure.ts'

/** Means standard input or standard output in place of a file name. */
export const STANDARD_STREAM = '-'

/** A file, standard input or a pipe to import. */
export class ImportSource implements AsyncIterable<Buffer> {
  /** Its name in messages. */
  readonly name: string
  readonly #stream: Readable
  /** The path of a file, and its state before it was read; undefined for a pipe. */
  readonly #file: { readonly path: string; readonly before: Stats } | undefined
  #bytes = 0

  private constructor(name: string, stream: Readable, file?: { path: string; before: Stats }) {
    this.name = name
    this.#stream = stream
    this.#file = file
    // Whoever reads it gets the error, also an earlier one.
    stream.on('error', () => {})
  }

  /**
   * Opens a file by its name, or standard input by `-`. The end of a pipe does not prove that all of it arrived: it looks the same if
   * the program that writes to it was killed. So the operator must know the number of its rows.
   *
   * @throws {CommandFailure} if it cannot be read, or is a pipe of an unknown number of rows
   */
  static async open(file: string, expectedRows: number | undefined): Promise<ImportSource> {
    if (file === STANDARD_STREAM) {
      if (expectedRows === undefined) throw unknownPipe('standard input')
      return new ImportSource('standard input', process.stdin)
    }
    const name = printable(file)
    try {
      // Before opening it, because opening a named pipe waits for the program that writes to it.
      const before = await stat(file)
      if (before.isDirectory()) throw new CommandFailure(`The file cannot be read: ${name} is a folder`)
      if (before.isFile()) return new ImportSource(name, createReadStream(file), { path: file, before })
      if (expectedRows === undefined) throw unknownPipe(name)
      if (!before.isFIFO()) return new ImportSource(name, createReadStream(file))
      // A pipe opened as a file could not be closed while it is read.
      const fd = await promisify(open)(file, 'r')
      return new ImportSource(name, new Socket({ fd, readable: true, writable: false }))
    } catch (error) {
      if (!isSystemError(error)) throw error
      throw new CommandFailure(`The file cannot be read: ${printable(error.message)}`)
    }
  }

  /** @throws {CommandFailure} if it cannot be read */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of this.#stream) {
        this.#bytes += chunk.length
        yield chunk
      }
    } catch (error) {
      if (!isSystemError(error)) throw error
      throw new CommandFailure(`${this.name} cannot be read: ${printable(error.message)}`)
    }
  }

  /** Says why what was read may be incomplete; undefined if it is not. */
  async findError(endsInNewline: boolean): Promise<string | undefined> {
    if (this.#file === undefined)
      return endsInNewline ? undefined : 'its last line does not end in a newline, so it may be incomplete'
    const { path, before } = this.#file
    const now = await stat(path)
    return now.size === this.#bytes && now.mtimeMs === before.mtimeMs && now.ino === before.ino
      ? undefined
      : 'it changed while it was read'
  }

  /** Stops reading. Open standard input would keep the process alive. */
  close(): void {
    this.#stream.destroy()
  }
}

function unknownPipe(name: string): CommandFailure {
  return new CommandFailure(
    `The end of ${name} does not prove that all of it arrived. Add the number of its rows without the header, such as
  --rows "$(($(wc -l <stock.csv) - 1))"
or import a file instead. Nothing was done.`,
    exitCodes.wrongUsage,
  )
}
