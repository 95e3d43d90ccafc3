import { Readable, type Transform } from 'node:stream'
import zlib from 'node:zlib'
import { type GzipPart, gzipPart, joinedGzip } from './gzip.ts'

/** A content coding of RFC 9110, section 8.4.1. */
export type Encoding = 'identity' | 'zstd' | 'br' | 'gzip'

/** Compresses chunks with a total length of `size` bytes in Node's thread pool. */
type Compressor = (chunks: readonly Buffer[], size: number) => Promise<Buffer[]>

/** The available compressors. At these levels, compressing a list takes about as long as reading it from PostgreSQL. */
const compressors: Readonly<Partial<Record<Encoding, Compressor>>> = {
  // Node supports zstd since 22.15.
  ...(typeof zlib.createZstdCompress === 'function'
    ? { zstd: (chunks) => compressWhole(chunks, zlib.createZstdCompress()) }
    : {}),
  br: (chunks, size) => {
    const params = {
      [zlib.constants.BROTLI_PARAM_QUALITY]: 4,
      [zlib.constants.BROTLI_PARAM_SIZE_HINT]: size,
    }
    return compressWhole(chunks, zlib.createBrotliCompress({ params }))
  },
  async gzip(chunks) {
    const parts: GzipPart[] = []
    for (const chunk of chunks) parts.push(await gzipOnce(chunk))
    return joinedGzip(parts)
  },
}

/** The compressed form of each chunk, cached for as long as a list contains the chunk. */
const gzipParts = new WeakMap<Buffer, Promise<GzipPart>>()

function gzipOnce(chunk: Buffer): Promise<GzipPart> {
  const part = gzipParts.get(chunk) ?? gzipPart(chunk, 4)
  gzipParts.set(chunk, part)
  return part
}

function compressWhole(chunks: readonly Buffer[], stream: Transform): Promise<Buffer[]> {
  return Readable.from(chunks).compose(stream).toArray()
}

/** The content codings that this version of Node supports, in order of preference. */
export const encodings: readonly Encoding[] = ['zstd', 'br', 'gzip', 'identity'].filter(isEncoding)

/**
 * The content codings of a large list that was made from an earlier one. Few of its chunks are new, and gzip compresses only
 * these. With another coding, each change would have the whole list compressed again, for as many lists at once as clients
 * ask for: Brotli streams cannot be concatenated, and some decoders of Zstandard, including Node's, stop after the first frame.
 */
export const encodingsOfPatchedLists: readonly Encoding[] = ['gzip', 'identity']

function isEncoding(name: string): name is Encoding {
  return name === 'identity' || name in compressors
}

/**
 * Returns the list's chunks in the content coding; `size` is their total length in bytes. With `gzip`, chunks that were
 * compressed before are not compressed again.
 */
export async function compressed(
  chunks: readonly Buffer[],
  size: number,
  encoding: Encoding,
): Promise<Buffer[]> {
  const compressor = compressors[encoding]
  return compressor === undefined ? [...chunks] : compressor(chunks, size)
}
