import { promisify } from 'node:util'
import zlib from 'node:zlib'

const deflateRaw = promisify(zlib.deflateRaw)

/** A part of a gzip file, which can be joined with others. */
export interface GzipPart {
  /** Deflate blocks that refer to nothing before them and end at a byte, none of them the last one of a file. */
  readonly blocks: Buffer
  /** The CRC-32 and the number of the bytes that were compressed. */
  readonly crc: number
  readonly size: number
}

/** Compresses bytes so that the result can be joined with others, outside of the event loop. */
export async function gzipPart(bytes: Buffer, level: number): Promise<GzipPart> {
  // A full flush ends the blocks at a byte without marking the last one as such (zlib manual, deflate()).
  const blocks = await deflateRaw(bytes, { level, finishFlush: zlib.constants.Z_FULL_FLUSH })
  return { blocks, crc: zlib.crc32(bytes), size: bytes.length }
}

/** RFC 1952, section 2.3: the magic number, deflate, no flags, no time, no extra flags, an unknown system. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])

/** A last block without content (RFC 1951, section 3.2.6). */
const LAST_BLOCK = Buffer.from([0x03, 0x00])

/**
 * Joins parts to one gzip file. Whole files can be joined, too, but not every client reads more than the first of
 * them (RFC 1952, section 2.2).
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

/** The polynomial of CRC-32, its lowest power in the highest bit. */
const POLYNOMIAL = 0xedb88320

/** The product of two polynomials over GF(2), modulo that of CRC-32. */
function product(one: number, other: number): number {
  let result = 0
  let multiple = other
  for (let bit = 31; bit >= 0; bit--) {
    if ((one >>> bit) & 1) result ^= multiple
    multiple = multiple & 1 ? (multiple >>> 1) ^ POLYNOMIAL : multiple >>> 1
  }
  return result >>> 0
}

/** x^(8·2^k) at index k: what 2^k bytes that follow multiply a CRC by. */
const BYTE_POWERS = [0x00800000]
while (BYTE_POWERS.length < 32) {
  const last = BYTE_POWERS.at(-1) ?? 0
  BYTE_POWERS.push(product(last, last))
}

/** The CRC-32 of some bytes followed by others, as `crc32_combine` of zlib has it. */
function joinedCrc(crc: number, nextCrc: number, nextSize: number): number {
  let shifted = crc
  for (const [index, power] of BYTE_POWERS.entries()) {
    if ((nextSize >>> index) & 1) shifted = product(power, shifted)
  }
  return (shifted ^ nextCrc) >>> 0
}
