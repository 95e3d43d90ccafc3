import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import zlib from 'node:zlib'

const deflateRaw = promisify(zlib.deflateRaw)

/** At this level, compressing a list takes about as long as reading it from PostgreSQL. */
const LEVEL = 4

/** Maximum buffers whose checksum is computed in one event-loop iteration. */
const BUFFERS_PER_ITERATION = 64

/** The header of a gzip member (RFC 1952, section 2.3): magic number, deflate, no flags, time or extra flags, unknown OS. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])

/** An empty final block (RFC 1951, section 3.2.6). */
const LAST_BLOCK = Buffer.from([0x03, 0x00])

/**
 * The deflate blocks of each buffer, cached for as long as a list contains the buffer. They have no references to earlier data,
 * end on a byte boundary, and none is marked as final, so they can be joined with others.
 */
const cachedBlocks = new WeakMap<Buffer, Promise<Buffer>>()

/**
 * Compresses buffers in Node's thread pool, into a gzip file with a single member. RFC 1952, section 2.2, also allows several
 * members, but some clients read only the first one. Buffers that were compressed before are not compressed again.
 */
export async function gzip(buffers: readonly Buffer[]): Promise<Buffer[]> {
  const result: Buffer[] = [HEADER]
  let crc = 0
  let size = 0
  for (const [index, buffer] of buffers.entries()) {
    if (index % BUFFERS_PER_ITERATION === BUFFERS_PER_ITERATION - 1) await setImmediate()
    result.push(await compress(buffer))
    crc = zlib.crc32(buffer, crc)
    size += buffer.length
  }
  const trailer = Buffer.alloc(8)
  trailer.writeUInt32LE(crc, 0)
  trailer.writeUInt32LE(size % 2 ** 32, 4)
  return [...result, LAST_BLOCK, trailer]
}

function compress(buffer: Buffer): Promise<Buffer> {
  const cached = cachedBlocks.get(buffer)
  if (cached !== undefined) return cached
  // A full flush ends on a byte boundary and does not mark the last block as final (zlib manual, deflate()).
  const blocks = deflateRaw(buffer, { level: LEVEL, finishFlush: zlib.constants.Z_FULL_FLUSH })
  cachedBlocks.set(buffer, blocks)
  return blocks
}
