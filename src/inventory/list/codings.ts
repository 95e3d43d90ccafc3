import { Readable, type Transform } from 'node:stream'
import zlib from 'node:zlib'
import { type GzipPart, gzipPart, joinedGzip } from './gzip.ts'

/** A content coding of RFC 9110, section 8.4.1. */
export type Encoding = 'identity' | 'zstd' | 'br' | 'gzip'

/** Compresses the bytes of all chunks outside of the event loop. */
type Compressor = (chunks: readonly Buffer[], size: number) => Promise<Buffer[]>

/** Levels at which compressing takes about as long as reading the same entries from PostgreSQL. */
const compressors: Readonly<Partial<Record<Encoding, Compressor>>> = {
  // Node has it from 22.15 on.
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

/** What chunks were compressed to, for as long as a list has them. */
const gzipParts = new WeakMap<Buffer, Promise<GzipPart>>()

function gzipOnce(chunk: Buffer): Promise<GzipPart> {
  const part = gzipParts.get(chunk) ?? gzipPart(chunk, 4)
  gzipParts.set(chunk, part)
  return part
}

function compressWhole(chunks: readonly Buffer[], stream: Transform): Promise<Buffer[]> {
  return Readable.from(chunks).compose(stream).toArray()
}

/** The content codings that can be made here, the preferred ones first. */
export const encodings: readonly Encoding[] = ['zstd', 'br', 'gzip', 'identity'].filter(isEncoding)

/**
 * The same for a large list that changes: a change affects few chunks, and in gzip only these are compressed again. Brotli
 * has no parts that could be joined; zstd has frames, but Node for one decompresses the first of them only.
 */
export const encodingsOfPatchedLists: readonly Encoding[] = ['gzip', 'zstd', 'br', 'identity'].filter(
  isEncoding,
)

function isEncoding(name: string): name is Encoding {
  return name === 'identity' || name in compressors
}

/** Compresses chunks; those that were compressed by `gzip` before are not compressed again. */
export async function compressed(
  chunks: readonly Buffer[],
  size: number,
  encoding: Encoding,
): Promise<Buffer[]> {
  const compressor = compressors[encoding]
  return compressor === undefined ? [...chunks] : compressor(chunks, size)
}
