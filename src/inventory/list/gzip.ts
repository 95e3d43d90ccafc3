import { promisify } from 'node:util'
import zlib from 'node:zlib'

const deflateRaw = promisify(zlib.deflateRaw)

/** Compressed data that can be joined with other parts into one gzip file. */
export interface GzipPart {
  /** Deflate blocks without references to earlier data. They end on a byte boundary, and none is marked as final. */
  readonly blocks: Buffer
  /** The CRC-32 of the uncompressed bytes. */
  readonly crc: number
  /** The number of uncompressed bytes. */
  readonly size: number
}

/** Compresses bytes to a part that can be joined with others. Runs in Node's thread pool. */
export async function gzipPart(bytes: Buffer, level: number): Promise<GzipPart> {
  // A full flush ends on a byte boundary and does not mark the last block as final (zlib manual, deflate()).
  const blocks = await deflateRaw(bytes, { level, finishFlush: zlib.constants.Z_FULL_FLUSH })
  return { blocks, crc: zlib.crc32(bytes), size: bytes.length }
}

/** The header of a gzip member (RFC 1952, section 2.3): magic number, deflate, no flags, time or extra flags, unknown OS. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])

/** An empty final block (RFC 1951, section 3.2.6). */
const LAST_BLOCK = Buffer.from([0x03, 0x00])

/**
 * Joins parts into a gzip file with a single member. RFC 1952, section 2.2, also allows several members, but some clients
 * read only the first one.
 */
export function joinedGzip(parts: readonly GzipPart[]): Buffer[] {
  let crc = 0
  let size = 0
  for (const part of parts) {
    crc = joinedCrc(crc, part.crc, part.size)
    size += part.size
  }
  const trailer = Buffer.alloc(8)
  trailer.writeUInt32LE(crc, 0)
  trailer.writeUInt32LE(size % 2 ** 32, 4)
  return [HEADER, ...parts.map(({ blocks }) => blocks), LAST_BLOCK, trailer]
}

/** The CRC-32 polynomial, with the coefficient of the lowest power in the highest bit. */
const POLYNOMIAL = 0xedb88320

/** Returns the product of two polynomials over GF(2), modulo the CRC-32 polynomial. */
function product(one: number, other: number): number {
  let result = 0
  let multiple = other
  for (let bit = 31; bit >= 0; bit--) {
    if ((one >>> bit) & 1) result ^= multiple
    multiple = multiple & 1 ? (multiple >>> 1) ^ POLYNOMIAL : multiple >>> 1
  }
  return result >>> 0
}

/** x^(8·2^k) at index k: appending 2^k bytes multiplies a CRC by this factor. */
const BYTE_POWERS = [0x00800000]
while (BYTE_POWERS.length < 32) {
  const last = BYTE_POWERS.at(-1) ?? 0
  BYTE_POWERS.push(product(last, last))
}

/** Returns the CRC-32 of two concatenated byte sequences, as zlib's `crc32_combine` does. */
function joinedCrc(crc: number, nextCrc: number, nextSize: number): number {
  let shifted = crc
  for (const [index, power] of BYTE_POWERS.entries()) {
    if ((nextSize >>> index) & 1) shifted = product(power, shifted)
  }
  return (shifted ^ nextCrc) >>> 0
}
