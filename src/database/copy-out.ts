import { Readable } from 'node:stream'
import type { Connection, Submittable } from 'pg'

/** A message is a byte that tells its kind, and its length, which counts itself but not that byte. */
const HEADER_SIZE = 5
const LENGTH_SIZE = 4

const COPY_DATA = 'd'.charCodeAt(0)

/** What else may come before the end: CopyOutResponse, and what a server says of itself at any time. */
const PASSED_OVER = [...'HNSA'].map((code) => code.charCodeAt(0))

type Listener = (piece: Buffer) => void

/**
 * The rows of a `COPY … TO STDOUT` in the format of COPY, a line each, in pieces of any length; for a client's `query`
 * (PostgreSQL manual, section 54.2.6). Rows are put together where they were received: with a slice for each, as
 * pg-copy-streams makes it, a million rows leave a hundred megabytes for the collector.
 *
 * Raises the error with which the server ends it, or the connection breaks.
 */
export class CopyOut extends Readable implements Submittable {
  readonly #text: string
  readonly #header = Buffer.alloc(HEADER_SIZE)
  #headerLength = 0
  /** How much of the message under way is still to come. */
  #missing = 0
  #stream: Connection['stream'] | undefined
  /** Who reads the messages of every other statement. */
  #others: Listener[] = []

  constructor(text: string) {
    super()
    this.#text = text
  }

  submit(connection: Connection): void {
    this.#stream = connection.stream
    this.#others = this.#stream.listeners('data').filter(isListener)
    for (const listener of this.#others) this.#stream.off('data', listener)
    this.#stream.on('data', this.#take)
    connection.query(this.#text)
  }

  override _read(): void {
    this.#stream?.resume()
  }

  handleError(error: Error): void {
    this.destroy(error)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {}

  readonly #take = (piece: Buffer): void => {
    let used = 0
    let at = 0
    while (at < piece.length) {
      if (this.#missing === 0) {
        if (this.#headerLength === 0 && !isExpected(piece[at])) {
          this.#finish(piece.subarray(0, used), piece.subarray(at))
          return
        }
        at += this.#takeHeader(piece, at)
      } else {
        const end = Math.min(at + this.#missing, piece.length)
        if (this.#header[0] === COPY_DATA) {
          piece.copyWithin(used, at, end)
          used += end - at
        }
        this.#missing -= end - at
        at = end
      }
    }
    if (used > 0 && !this.push(piece.subarray(0, used))) this.#stream?.pause()
  }

  /** Takes what is there of a message's header and returns how much that was. */
  #takeHeader(piece: Buffer, at: number): number {
    const taken = piece.copy(this.#header, this.#headerLength, at, at + HEADER_SIZE - this.#headerLength)
    this.#headerLength += taken
    if (this.#headerLength === HEADER_SIZE) {
      this.#missing = this.#header.readUInt32BE(1) - LENGTH_SIZE
      this.#headerLength = 0
    }
    return taken
  }

  /** Leaves what follows the rows, be it an error or the end, to those who read everything else. */
  #finish(rows: Buffer, rest: Buffer): void {
    if (rows.length > 0) this.push(rows)
    if (rest.toString('latin1', 0, 1) !== 'E') this.push(null)
    this.#stream?.off('data', this.#take)
    for (const listener of this.#others) {
      this.#stream?.on('data', listener)
      listener(rest)
    }
    this.#stream?.resume()
  }
}

function isExpected(code: number | undefined): boolean {
  return code === COPY_DATA || (code !== undefined && PASSED_OVER.includes(code))
}

function isListener(listener: unknown): listener is Listener {
  return typeof listener === 'function'
}
