import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import zlib from 'node:zlib'

const deflateRaw = promisify(zlib.deflateRaw)

/** At this level, compressing a list takes about as long as reading it from PostgreSQL. */
const LEVEL = 4

/** Maximum chunks whose checksum is computed in one event-loop iteration. */
const CHUNKS_PER_ITERATION = 64

/** The header of a gzip member (RFC 1952, section 2.3): magic number, deflate, no flags, time or extra flags, unknown OS. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])

/** An empty final block (RFC 1951, section 3.2.6). */
const LAST_BLOCK = Buffer.from([0x03, 0x00])

/**
 * The deflate blocks of each chunk, cached for as long as a list contains the chunk. They have no references to earlier data,
 * end on a byte boundary, and none is marked as final, so they can be joined with others.
 */
const cachedBlocks = new WeakMap<Buffer, Promise<Buffer>>()

/**
 * Compresses chunks in Node's thread pool, into a gzip file with a single member. RFC 1952, section 2.2, also allows several
 * members, but some clients read only the first one. Chunks that were compressed before are not compressed again.
 */
export async function gzip(chunks: readonly Buffer[]): Promise<Buffer[]> {
  const result: Buffer[] = [HEADER]
  let crc = 0
  let size = 0
  for (const [index, chunk] of chunks.entries()) {
    if (index % CHUNKS_PER_ITERATION === CHUNKS_PER_ITERATION - 1) await setImmediate()
    result.push(await compressChunk(chunk))
    crc = zlib.crc32(chunk, crc)
    size += chunk.length
  }
  const trailer = Buffer.alloc(8)
  trailer.writeUInt32LE(crc, 0)
  trailer.writeUInt32LE(size % 2 ** 32, 4)
  return [...result, LAST_BLOCK, trailer]
}

function compressChunk(chunk: Buffer): Promise<Buffer> {
  const cached = cachedBlocks.get(chunk)
  if (cached !== undefined) return cached
  // A full flush ends on a byte boundary and does not mark the last block as final (zlib manual, deflate()).
  const blocks = deflateRaw(chunk, { level: LEVEL, finishFlush: zlib.constants.Z_FULL_FLUSH })
  cachedBlocks.set(chunk, blocks)
  return blocks
}
