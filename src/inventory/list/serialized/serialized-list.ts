import { hash } from 'node:crypto'
import { gzip } from './gzip.ts'
import type { Piece } from './pieces.ts'

/** A content coding of RFC 9110, section 8.4.1. */
export type Encoding = 'identity' | 'gzip'

/** The content codings of a list, in order of preference. */
export const encodings: readonly Encoding[] = ['gzip', 'identity']

/** The bytes of a list in one content coding. */
export interface Representation {
  readonly chunks: readonly Buffer[]
  /** In bytes. */
  readonly size: number
}

/** Lists smaller than this are kept in one chunk, which is the fastest to send. */
const LARGE_LIST_BYTES = 1_048_576

const EMPTY_LIST = Buffer.from('[]')
const CLOSING_BRACKET = Buffer.from(']')

/** The list as of one moment, serialized once for all clients. Immutable. */
export class SerializedList implements Representation {
  readonly pieces: readonly Piece[]
  /** Number of entries. */
  readonly count: number
  readonly chunks: readonly Buffer[]
  readonly size: number
  /** Equal lists have the same one in every process. */
  readonly digest: string
  #gzip: Promise<Representation> | undefined

  constructor(pieces: readonly Piece[]) {
    this.pieces = pieces
    this.count = pieces.reduce((sum, { count }) => sum + count, 0)
    this.chunks =
      pieces.length === 0 ? [EMPTY_LIST] : merged([...pieces.map(({ bytes }) => bytes), CLOSING_BRACKET])
    this.size = sumSizes(this.chunks)
    // A hash of the pieces' hashes, so that a change requires hashing only its own piece. Equal lists have equal pieces.
    const digests = pieces.map(({ digest }) => digest).join('')
    this.digest = hash('sha256', digests, 'base64url').slice(0, 22)
  }

  /** The `ETag` of the list in a content coding: a strong validator, with its quotes (RFC 9110, section 8.8.3). */
  etagOf(encoding: Encoding): string {
    return encoding === 'identity' ? `"${this.digest}"` : `"${this.digest}-${encoding}"`
  }

  /** Returns the list in a content coding. It is compressed at the first call only, in Node's thread pool. */
  encoded(encoding: Encoding): Representation | Promise<Representation> {
    if (encoding === 'identity') return this
    this.#gzip ??= this.#compress()
    return this.#gzip
  }

  async #compress(): Promise<Representation> {
    const chunks = merged(await gzip(this.chunks))
    return { chunks, size: sumSizes(chunks) }
  }
}

function merged(chunks: Buffer[]): Buffer[] {
  return sumSizes(chunks) < LARGE_LIST_BYTES ? [Buffer.concat(chunks)] : chunks
}

function sumSizes(chunks: readonly Buffer[]): number {
  return chunks.reduce((size, chunk) => size + chunk.length, 0)
}
