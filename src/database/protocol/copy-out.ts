import { Readable } from 'node:stream'
import type { Connection, Submittable } from 'pg'

/** A message starts with a byte for its type, and its length, which includes the length field but not the type. */
const HEADER_SIZE = 5
const LENGTH_SIZE = 4

const COPY_DATA = 'd'.charCodeAt(0)
const DATA_ROW = 'D'.charCodeAt(0)

/**
 * Messages to skip: CopyOutResponse, the results of statements before the COPY, and notices, parameter changes and
 * notifications, which the server may send at any time.
 */
const SKIPPED = [...'HTCNSA'].map((code) => code.charCodeAt(0))

type Listener = (chunk: Buffer) => void

/** The values of a row as text, in the order of its columns. */
export type TextRow = readonly (string | null)[]

/**
 * Streams the rows of a `COPY … TO STDOUT` in COPY's format, one line per row, in chunks of any size (PostgreSQL manual,
 * section 54.2.6). Pass it to a client's `query`. The COPY may be the last of several statements in one text, which PostgreSQL
 * runs as one transaction (section 54.2.2.1); `onRow` receives the rows of the statements before it. The stream fails with the
 * error that the server reports, or when the connection breaks.
 *
 * Rows are joined in the buffer in which they arrived. With a slice for each row, as in pg-copy-streams, a million rows leave
 * a hundred megabytes of garbage.
 */
export class CopyOut extends Readable implements Submittable {
  readonly #text: string
  readonly #onRow: (row: TextRow) => void
  /** The parts of the current DataRow message that have arrived. */
  #row: Buffer[] = []
  readonly #header = Buffer.alloc(HEADER_SIZE)
  #headerLength = 0
  /** Bytes of the current message that have not arrived. */
  #missing = 0
  #stream: Connection['stream'] | undefined
  /** The listeners of pg's parser, which reads the responses to all other statements. */
  #parserListeners: Listener[] = []

  constructor(text: string, onRow: (row: TextRow) => void = () => {}) {
    super()
    this.#text = text
    this.#onRow = onRow
  }

  submit(connection: Connection): void {
    this.#stream = connection.stream
    this.#parserListeners = this.#stream.listeners('data').filter(isListener)
    for (const listener of this.#parserListeners) this.#stream.off('data', listener)
    this.#stream.on('data', this.#onData)
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

  readonly #onData = (chunk: Buffer): void => {
    let rowsEnd = 0
    let offset = 0
    while (offset < chunk.length) {
      if (this.#missing === 0) {
        if (this.#headerLength === 0 && !isExpected(chunk[offset])) {
          this.#finish(chunk.subarray(0, rowsEnd), chunk.subarray(offset))
          return
        }
        offset += this.#readHeader(chunk, offset)
      } else {
        const end = Math.min(offset + this.#missing, chunk.length)
        if (this.#header[0] === COPY_DATA) {
          chunk.copyWithin(rowsEnd, offset, end)
          rowsEnd += end - offset
        } else if (this.#header[0] === DATA_ROW) {
          this.#row.push(Buffer.from(chunk.subarray(offset, end)))
        }
        this.#missing -= end - offset
        if (this.#missing === 0 && this.#header[0] === DATA_ROW) {
          this.#onRow(valuesOf(Buffer.concat(this.#row)))
          this.#row = []
        }
        offset = end
      }
    }
    if (rowsEnd > 0 && !this.push(chunk.subarray(0, rowsEnd))) this.#stream?.pause()
  }

  /** Reads as much of a message's header as has arrived, and returns the number of bytes. */
  #readHeader(chunk: Buffer, offset: number): number {
    const end = offset + HEADER_SIZE - this.#headerLength
    const count = chunk.copy(this.#header, this.#headerLength, offset, end)
    this.#headerLength += count
    if (this.#headerLength === HEADER_SIZE) {
      this.#missing = this.#header.readUInt32BE(1) - LENGTH_SIZE
      this.#headerLength = 0
    }
    return count
  }

  /** Hands all messages after the rows to pg's parser. The first of them is an error or the end of the COPY. */
  #finish(rows: Buffer, rest: Buffer): void {
    if (rows.length > 0) this.push(rows)
    if (rest.toString('latin1', 0, 1) !== 'E') this.push(null)
    this.#stream?.off('data', this.#onData)
    for (const listener of this.#parserListeners) {
      this.#stream?.on('data', listener)
      listener(rest)
    }
    this.#stream?.resume()
  }
}

function isExpected(code: number | undefined): boolean {
  return code === COPY_DATA || code === DATA_ROW || (code !== undefined && SKIPPED.includes(code))
}

/** Parses the body of a DataRow message (PostgreSQL manual, section 54.7). */
function valuesOf(body: Buffer): TextRow {
  let offset = 2
  return Array.from({ length: body.readUInt16BE(0) }, () => {
    const length = body.readInt32BE(offset)
    offset += LENGTH_SIZE
    if (length === -1) return null
    offset += length
    return body.toString('utf8', offset - length, offset)
  })
}

function isListener(listener: unknown): listener is Listener {
  return typeof listener === 'function'
}
