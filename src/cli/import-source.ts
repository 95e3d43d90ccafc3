import { createHash, type Hash } from 'node:crypto'
import { open as openDescriptor, type Stats } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { type Command, Option } from 'commander'
import { exitCodes } from '../process/exit-codes.ts'
import { CommandFailure, isSystemError } from './failure.ts'
import { STANDARD_STREAM } from './file-format.ts'
import { integerFrom, matching } from './matching.ts'
import { formatNumber } from './progress.ts'

const NEWLINE = 10

/** What the operator knows about an input, to check that it arrived completely. */
export interface ExpectedInput {
  /** Number of rows. */
  readonly rows?: number
  /** The SHA-256 of its bytes, in hexadecimal digits. */
  readonly sha256?: string
  /** Set if the operator accepts the input without a check. */
  readonly unverified?: true
}

/** Adds the options for what the operator knows about the input. */
export function addInputOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--rows <count>', 'refuse the input unless it has exactly this many rows').argParser(
        integerFrom(0),
      ),
    )
    .addOption(
      new Option('--sha256 <digest>', 'refuse the input unless its bytes have this SHA-256').argParser(
        matching(/^[0-9a-f]{64}$/i, '64 hexadecimal digits'),
      ),
    )
    .addOption(
      new Option('--unverified', 'accept input from a pipe without checking that it is complete').conflicts([
        'rows',
        'sha256',
      ]),
    )
}

/**
 * Reads a file, standard input or a pipe, and checks that it is complete. The end of a pipe does not prove that: it looks
 * the same if the program that writes to it was killed.
 */
export class ImportSource implements AsyncIterable<Buffer> {
  /** Number of bytes read. */
  bytes = 0
  /** Its name in messages. */
  readonly name: string
  /** In bytes; undefined for a pipe. */
  readonly size: number | undefined
  readonly #stream: Readable
  /** Undefined for standard input. */
  readonly #handle: FileHandle | undefined
  readonly #stats: Stats | undefined
  readonly #expected: ExpectedInput
  readonly #hash: Hash | undefined
  #lastByte: number | undefined
  #hasEnded = false

  private constructor(name: string, expected: ExpectedInput, stream: Readable, opened?: OpenFile) {
    this.name = name
    this.#expected = expected
    this.#stream = stream
    this.#handle = opened?.handle
    this.#stats = opened?.stats
    this.size = opened?.stats.isFile() ? opened.stats.size : undefined
    this.#hash = expected.sha256 === undefined ? undefined : createHash('sha256')
  }

  /**
   * Opens a file by its name, or standard input by `-`.
   *
   * @throws {CommandFailure} if it cannot be read, or is a pipe without an option to check it
   */
  static async open(file: string, expected: ExpectedInput): Promise<ImportSource> {
    if (file === STANDARD_STREAM) {
      refuseUnknownPipe('standard input', expected)
      return new ImportSource('standard input', expected, process.stdin)
    }
    try {
      // Before opening it, because opening a named pipe waits for the program that writes to it.
      const found = await stat(file)
      if (found.isDirectory()) throw new CommandFailure(`The file cannot be read: ${file} is a folder`)
      if (!found.isFile()) refuseUnknownPipe(file, expected)
      if (found.isFIFO()) {
        // A pipe opened as a file could not be closed while it is read.
        const fd = await promisify(openDescriptor)(file, 'r')
        return new ImportSource(file, expected, new Socket({ fd, readable: true, writable: false }))
      }
      const handle = await open(file)
      // `close` closes the handle, because its size is checked after the last byte was read.
      const stream = handle.createReadStream({ autoClose: false })
      return new ImportSource(file, expected, stream, { handle, stats: await handle.stat() })
    } catch (error) {
      if (error instanceof CommandFailure) throw error
      throw new CommandFailure(`The file cannot be read: ${error instanceof Error ? error.message : error}`)
    }
  }

  /** @throws {CommandFailure} if it cannot be read */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of this.#stream) {
        this.bytes += chunk.length
        this.#lastByte = chunk.at(-1) ?? this.#lastByte
        this.#hash?.update(chunk)
        yield chunk
      }
    } catch (error) {
      if (!isSystemError(error)) throw error
      throw new CommandFailure(`${this.name} cannot be read: ${error.message}`)
    }
    this.#hasEnded = true
  }

  /** Says why the input is incomplete or not the expected one; undefined if it is fine. */
  async findError(rows: number): Promise<string | undefined> {
    const { rows: expectedRows, sha256 } = this.#expected
    if (!this.#hasEnded) return 'it was not read completely'
    if (this.size === undefined && this.#lastByte !== undefined && this.#lastByte !== NEWLINE) {
      return 'its last line does not end in a newline, so it may be incomplete'
    }
    if (expectedRows !== undefined && rows !== expectedRows) {
      return `it has ${formatNumber(rows)} of ${formatNumber(expectedRows)} expected rows`
    }
    const digest = this.#hash?.digest('hex')
    if (digest !== sha256?.toLowerCase()) return `its SHA-256 is ${digest}, not ${sha256}`
    if (this.size !== undefined && (await this.#hasChanged())) return 'it changed while it was read'
    return undefined
  }

  /** Stops reading and closes the file. Open standard input would keep the process alive. */
  async close(): Promise<void> {
    this.abort()
    await this.#handle?.close()
  }

  /** Stops reading. */
  abort(): void {
    this.#stream.destroy()
  }

  async #hasChanged(): Promise<boolean> {
    const now = await this.#handle?.stat()
    return now?.size !== this.bytes || now.mtimeMs !== this.#stats?.mtimeMs
  }
}

interface OpenFile {
  readonly handle: FileHandle
  readonly stats: Stats
}

function refuseUnknownPipe(name: string, { rows, sha256, unverified }: ExpectedInput): void {
  if (rows !== undefined || sha256 !== undefined || unverified) return
  throw new CommandFailure(
    `The end of ${name} does not prove that all of it arrived, so incomplete input could be imported. Add one of
  --rows "$(($(wc -l <stock.csv) - 1))"              the number of its rows; for NDJSON without "- 1"
  --sha256 "$(sha256sum <stock.csv | cut -c1-64)"    the SHA-256 of its bytes
  --unverified                                       import whatever arrives
or import a file instead. Nothing was done.`,
    exitCodes.wrongUsage,
  )
}
