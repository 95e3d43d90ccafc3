import { createHash } from 'node:crypto'
import { Readable, type Transform } from 'node:stream'
import zlib from 'node:zlib'

/** A content coding of RFC 9110, section 8.4.1. */
export type Encoding = 'identity' | 'zstd' | 'br' | 'gzip'

type Compressor = (size: number) => Transform

/** Levels at which compressing takes about as long as reading the same entries from PostgreSQL. */
const compressors: Readonly<Partial<Record<Encoding, Compressor>>> = {
  // Node has it from 22.15 on.
  ...(typeof zlib.createZstdCompress === 'function' ? { zstd: () => zlib.createZstdCompress() } : {}),
  br: (size) =>
    zlib.createBrotliCompress({
      params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4, [zlib.constants.BROTLI_PARAM_SIZE_HINT]: size },
    }),
  gzip: () => zlib.createGzip({ level: 4 }),
}

/** The content codings that can be made here, the preferred ones first. */
export const encodings: readonly Encoding[] = ['zstd', 'br', 'gzip', 'identity'].filter(isEncoding)

function isEncoding(name: string): name is Encoding {
  return name === 'identity' || name in compressors
}

/** The bytes of a list in one content coding. */
export interface Representation {
  readonly chunks: readonly Buffer[]
  /** Of all chunks together, in bytes. */
  readonly size: number
  /** A strong validator in its quotes (RFC 9110, section 8.8.3): the same bytes have the same one everywhere. */
  readonly etag: string
}

/** A list as of one moment, serialized once for everybody who gets it. Nothing in it ever changes. */
export class Snapshot implements Representation {
  readonly chunks: readonly Buffer[]
  readonly size: number
  readonly etag: string
  readonly #digest: string
  readonly #encoded = new Map<Encoding, Promise<Representation>>()

  /** `digest` is a hash of the chunks' bytes, in base64url. */
  constructor(chunks: readonly Buffer[], digest: string) {
    this.chunks = chunks
    this.size = sizeOf(chunks)
    this.#digest = digest
    this.etag = `"${digest}"`
  }

  /** The list in a content coding; made at the first call, outside of the event loop, and kept. */
  encoded(encoding: Encoding): Representation | Promise<Representation> {
    const compressor = compressors[encoding]
    if (compressor === undefined) return this
    let representation = this.#encoded.get(encoding)
    if (representation === undefined) {
      representation = this.#compress(compressor(this.size), encoding)
      this.#encoded.set(encoding, representation)
    }
    return representation
  }

  async #compress(stream: Transform, encoding: Encoding): Promise<Representation> {
    const chunks: Buffer[] = await Readable.from(this.chunks).compose(stream).toArray()
    return { chunks: merged(chunks), size: sizeOf(chunks), etag: `"${this.#digest}-${encoding}"` }
  }
}

/** The size of the chunks of a list, in bytes; a list that is smaller is kept in one piece, the fastest to send. */
const CHUNK = 1_048_576

/** The size of the first chunk: most lists are small. */
const FIRST_CHUNK = 65_536

const NEWLINE = 0x0a
const COMMA = 0x2c
const CLOSING_BRACKET = 0x5d

/**
 * Makes a snapshot out of lines, each the JSON text of one item without a newline in it, as they come in pieces of any
 * length. Never works on more than one piece at a time, so that the event loop stays free.
 */
export async function snapshotOfLines(pieces: AsyncIterable<Buffer>): Promise<Snapshot> {
  const hash = createHash('sha256')
  const chunks: Buffer[] = []
  let chunk = Buffer.allocUnsafeSlow(FIRST_CHUNK)
  let used = chunk.write('[')
  for await (const piece of pieces) {
    // What ends a line separates two items; after the last item, it closes the array.
    for (let at = piece.indexOf(NEWLINE); at !== -1; at = piece.indexOf(NEWLINE, at + 1)) piece[at] = COMMA
    hash.update(piece)
    for (let taken = 0; taken < piece.length; ) {
      if (used === chunk.length) {
        chunks.push(chunk)
        chunk = Buffer.allocUnsafeSlow(CHUNK)
        used = 0
      }
      const copied = piece.copy(chunk, used, taken)
      taken += copied
      used += copied
    }
  }
  const isEmpty = chunks.length === 0 && used === 1
  if (isEmpty) used++
  chunk[used - 1] = CLOSING_BRACKET
  chunks.push(chunk.subarray(0, used))
  return new Snapshot(merged(chunks), hash.digest('base64url').slice(0, 22))
}

function merged(chunks: Buffer[]): Buffer[] {
  return sizeOf(chunks) < CHUNK ? [Buffer.concat(chunks)] : chunks
}

function sizeOf(chunks: readonly Buffer[]): number {
  return chunks.reduce((size, chunk) => size + chunk.length, 0)
}
