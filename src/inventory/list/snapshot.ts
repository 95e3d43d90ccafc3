import { hash } from 'node:crypto'
import { compressed, type Encoding, encodings, encodingsOfPatchedLists } from './codings.ts'
import { countEntries, type Piece, PieceBuilder } from './pieces.ts'

/** The bytes of a list in one content coding. */
export interface Representation {
  readonly chunks: readonly Buffer[]
  /** Total size of the chunks in bytes. */
  readonly size: number
  /** A strong validator, with its quotes (RFC 9110, section 8.8.3). Equal bytes have the same one in every process. */
  readonly etag: string
}

/** Lists smaller than this are kept in one chunk, which is the fastest to send. */
const LARGE_LIST_BYTES = 1_048_576

const EMPTY_LIST = Buffer.from('[]')

/** The list as of one moment, serialized once for all clients. Immutable. */
export class Snapshot implements Representation {
  /** All entries of the list. */
  readonly pieces: readonly Piece[]
  /** Number of entries. */
  readonly count: number
  readonly chunks: readonly Buffer[]
  readonly size: number
  readonly etag: string
  readonly #isPatched: boolean
  readonly #digest: string
  readonly #encoded = new Map<Encoding, Promise<Representation>>()

  /** @param isPatched whether the list was made from an earlier one and the changes since then */
  constructor(pieces: readonly Piece[], isPatched = false) {
    this.#isPatched = isPatched
    this.pieces = pieces
    this.count = countEntries(pieces)
    this.chunks = pieces.length === 0 ? [EMPTY_LIST] : merged(pieces.map(({ bytes }) => bytes))
    this.size = sizeOf(this.chunks)
    // A hash of the pieces' hashes, so that a change requires hashing only its own piece. Equal lists have equal pieces.
    const digests = pieces.map(({ digest }) => digest).join('')
    this.#digest = hash('sha256', digests, 'base64url').slice(0, 22)
    this.etag = this.etagOf('identity')
  }

  /** The content codings in which the list is available, in order of preference. */
  get encodings(): readonly Encoding[] {
    return this.#isPatched && this.chunks.length > 1 ? encodingsOfPatchedLists : encodings
  }

  /** The `ETag` of the list in a content coding. */
  etagOf(encoding: Encoding): string {
    return encoding === 'identity' ? `"${this.#digest}"` : `"${this.#digest}-${encoding}"`
  }

  /**
   * Returns the list in a content coding. The first call compresses it in Node's thread pool; later calls reuse the result.
   */
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
    return { chunks, size: sizeOf(chunks), etag: this.etagOf(encoding) }
  }
}

/**
 * Makes a snapshot from lines that arrive in chunks of any length. Each line is the JSON text of an entry, in ascending
 * petId. Processes one chunk at a time, so that the event loop is not blocked for long. Reuses equal pieces of `former`.
 */
export async function snapshotOfLines(lines: AsyncIterable<Buffer>, former?: Snapshot): Promise<Snapshot> {
  const builder = new PieceBuilder(former?.pieces)
  for await (const part of lines) builder.add(part)
  return new Snapshot(builder.finish())
}

function merged(chunks: Buffer[]): Buffer[] {
  return chunks.length > 1 && sizeOf(chunks) < LARGE_LIST_BYTES ? [Buffer.concat(chunks)] : chunks
}

function sizeOf(chunks: readonly Buffer[]): number {
  return chunks.reduce((size, chunk) => size + chunk.length, 0)
}
