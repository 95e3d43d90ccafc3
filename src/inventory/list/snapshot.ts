import { hash } from 'node:crypto'
import { compressed, type Encoding, encodings, encodingsOfPatchedLists } from './codings.ts'
import { countEntries, type Piece, PieceBuilder } from './pieces.ts'

/** The bytes of a list in one content coding. */
export interface Representation {
  readonly chunks: readonly Buffer[]
  /** Of all chunks together, in bytes. */
  readonly size: number
  /** A strong validator in its quotes (RFC 9110, section 8.8.3): the same bytes have the same one everywhere. */
  readonly etag: string
}

/** A list that is smaller, in bytes, is kept in one chunk, the fastest to send. */
const LARGE_LIST_BYTES = 1_048_576

const OPENING = Buffer.from('[')
const CLOSING = Buffer.from(']')

/** A list as of one moment, serialized once for everybody who gets it. Nothing in it ever changes. */
export class Snapshot implements Representation {
  /** Every entry of the list. */
  readonly pieces: readonly Piece[]
  /** How many entries there are. */
  readonly count: number
  readonly chunks: readonly Buffer[]
  readonly size: number
  readonly etag: string
  readonly #isPatched: boolean
  readonly #digest: string
  readonly #encoded = new Map<Encoding, Promise<Representation>>()

  /** `isPatched` says that it was made from an earlier list and the changes since. */
  constructor(pieces: readonly Piece[], isPatched = false) {
    this.#isPatched = isPatched
    this.pieces = pieces
    this.count = countEntries(pieces)
    this.chunks = merged(chunksOf(pieces))
    this.size = sizeOf(this.chunks)
    // A hash of hashes, so that a change costs that of its piece. Equal lists have equal pieces.
    const digests = pieces.map(({ digest }) => digest).join('')
    this.#digest = hash('sha256', digests, 'base64url').slice(0, 22)
    this.etag = `"${this.#digest}"`
  }

  /** The content codings that the list can be had in, the preferred ones first. */
  get encodings(): readonly Encoding[] {
    return this.#isPatched && this.chunks.length > 1 ? encodingsOfPatchedLists : encodings
  }

  /** The list in a content coding; made at the first call, outside of the event loop, and kept. */
  encoded(encoding: Encoding): Representation | Promise<Representation> {
    if (encoding === 'identity') return this
    let representation = this.#encoded.get(encoding)
    if (representation === undefined) {
      representation = this.#compress(encoding)
      this.#encoded.set(encoding, representation)
    }
    return representation
  }

  async #compress(encoding: Encoding): Promise<Representation> {
    const chunks = merged(await compressed(this.chunks, this.size, encoding))
    return { chunks, size: sizeOf(chunks), etag: `"${this.#digest}-${encoding}"` }
  }
}

/**
 * Makes a snapshot out of lines, each the JSON text of one entry in ascending petId, as they come in parts of any length.
 * Never works on more than one part at a time, so that the event loop stays free. Shares the pieces that a former list has
 * as well.
 */
export async function snapshotOfLines(lines: AsyncIterable<Buffer>, former?: Snapshot): Promise<Snapshot> {
  const builder = new PieceBuilder(former?.pieces)
  for await (const part of lines) builder.add(part)
  return new Snapshot(builder.finish())
}

function chunksOf(pieces: readonly Piece[]): Buffer[] {
  const [first, ...others] = pieces.map(({ bytes }) => bytes)
  // Each entry has a comma before it, the first one of all included.
  return first === undefined ? [OPENING, CLOSING] : [OPENING, first.subarray(1), ...others, CLOSING]
}

function merged(chunks: Buffer[]): Buffer[] {
  return sizeOf(chunks) < LARGE_LIST_BYTES ? [Buffer.concat(chunks)] : chunks
}

function sizeOf(chunks: readonly Buffer[]): number {
  return chunks.reduce((size, chunk) => size + chunk.length, 0)
}
