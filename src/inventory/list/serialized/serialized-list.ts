import { hash } from 'node:crypto'
import type { Chunk } from './chunks.ts'
import { gzip } from './gzip.ts'

/** A content coding of RFC 9110, section 8.4.1. */
export type Encoding = 'identity' | 'gzip'

/** The bytes of a list in one content coding. */
export interface Representation {
  readonly buffers: readonly Buffer[]
  /** In bytes. */
  readonly size: number
}

/** Lists smaller than this are kept in one buffer, which is the fastest to send. */
const LARGE_LIST_BYTES = 1_048_576

/** The list as of one moment, serialized once for all clients. Immutable. */
export class SerializedList implements Representation {
  readonly chunks: readonly Chunk[]
  /** Number of entries. */
  readonly count: number
  readonly buffers: readonly Buffer[]
  readonly size: number
  /** Equal lists have the same one in every process. */
  readonly digest: string
  #gzip: Promise<Representation> | undefined

  constructor(chunks: readonly Chunk[]) {
    this.chunks = chunks
    this.count = chunks.reduce((sum, { count }) => sum + count, 0)
    const end = chunks.length === 0 ? '[]' : ']'
    const { buffers, size } = represent([...chunks.map(({ bytes }) => bytes), Buffer.from(end)])
    this.buffers = buffers
    this.size = size
    // A hash of the chunks' hashes, so that a change requires hashing only its own chunk. Equal lists have equal chunks.
    const digests = chunks.map(({ digest }) => digest).join('')
    this.digest = hash('sha256', digests, 'base64url').slice(0, 22)
  }

  /** Returns the `ETag` of the list in a content coding: a strong validator, with its quotes (RFC 9110, section 8.8.3). */
  makeTag(encoding: Encoding): string {
    return encoding === 'identity' ? `"${this.digest}"` : `"${this.digest}-${encoding}"`
  }

  /** Returns the list in a content coding. It is compressed at the first call only, in Node's thread pool. */
  encode(encoding: Encoding): Representation | Promise<Representation> {
    if (encoding === 'identity') return this
    this.#gzip ??= gzip(this.buffers).then(represent)
    return this.#gzip
  }
}

function represent(buffers: readonly Buffer[]): Representation {
  const size = buffers.reduce((sum, { length }) => sum + length, 0)
  return { buffers: size < LARGE_LIST_BYTES ? [Buffer.concat(buffers)] : buffers, size }
}
