import { Readable } from 'node:stream'
import type { Connection, Submittable } from 'pg'

/** A message starts with a byte for its type and its length, which includes itself but not that byte. */
const HEADER_SIZE = 5
const LENGTH_SIZE = 4

const COPY_DATA = 'd'.charCodeAt(0)
const DATA_ROW = 'D'.charCodeAt(0)

/**
 * Other messages before the end: CopyOutResponse, the results of statements before the COPY, and notices, settings and
 * notifications, which the server may send at any time.
 */
const SKIPPED = [...'HTCNSA'].map((code) => code.charCodeAt(0))

type Listener = (piece: Buffer) => void

/** The values of a row as text, in the order of its columns. */
export type TextRow = readonly (string | null)[]

/**
 * Streams the rows of a `COPY … TO STDOUT` in the format of COPY, one line each, in pieces of any length; for a client's
 * `query` (PostgreSQL manual, section 54.2.6). The COPY may be the last of several statements in one text, which
 * PostgreSQL runs as one transaction (section 54.2.2.1); `onRow` receives the rows of those before it. Rows are assembled
 * in the buffer in which they were received: with a slice for each, as pg-copy-streams makes it, a million rows leave a
 * hundred megabytes for the garbage collector.
 *
 * Fails with the error that the server reports, or when the connection breaks.
 */
export class CopyOut extends Readable implements Submittable {
  readonly #text: string
  readonly #onRow: (row: TextRow) => void
  /** The parts of a DataRow message that have arrived. */
  #row: Buffer[] = []
  readonly #header = Buffer.alloc(HEADER_SIZE)
  #headerLength = 0
  /** How many bytes of the current message are still to come. */
  #missing = 0
  #stream: Connection['stream'] | undefined
  /** The listeners of pg's own parser, which reads the messages of every other statement. */
  #others: Listener[] = []

  constructor(text: string, onRow: (row: TextRow) => void = () => {}) {
    super()
    this.#text = text
    this.#onRow = onRow
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
        } else if (this.#header[0] === DATA_ROW) {
          this.#row.push(Buffer.from(piece.subarray(at, end)))
        }
        this.#missing -= end - at
        if (this.#missing === 0 && this.#header[0] === DATA_ROW) {
          this.#onRow(valuesOf(Buffer.concat(this.#row)))
          this.#row = []
        }
        at = end
      }
    }
    if (used > 0 && !this.push(piece.subarray(0, used))) this.#stream?.pause()
  }

  /** Reads a message's header as far as it has arrived. Returns the number of bytes. */
  #takeHeader(piece: Buffer, at: number): number {
    const taken = piece.copy(this.#header, this.#headerLength, at, at + HEADER_SIZE - this.#headerLength)
    this.#headerLength += taken
    if (this.#headerLength === HEADER_SIZE) {
      this.#missing = this.#header.readUInt32BE(1) - LENGTH_SIZE
      this.#headerLength = 0
    }
    return taken
  }

  /** Hands the message after the rows, an error or the end, and all that follow to pg's parser. */
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
  return code === COPY_DATA || code === DATA_ROW || (code !== undefined && SKIPPED.includes(code))
}

/** Reads the body of a DataRow message (PostgreSQL manual, section 54.7). */
function valuesOf(body: Buffer): TextRow {
  let at = 2
  return Array.from({ length: body.readUInt16BE(0) }, () => {
    const length = body.readInt32BE(at)
    at += LENGTH_SIZE
    if (length === -1) return null
    at += length
    return body.toString('utf8', at - length, at)
  })
}

function isListener(listener: unknown): listener is Listener {
  return typeof listener === 'function'
}
