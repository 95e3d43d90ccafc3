import { hash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

const PREFIX = 'inv_'

/** How many digits of base 62 hold 256 random bits, and how many a CRC-32. */
const SECRET_LENGTH = 43
const CHECKSUM_LENGTH = 6

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const shape = new RegExp(`^${PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}$`)

/**
 * A new API key: a prefix that people and secret scanners recognise, 256 random bits, and the CRC-32 of both, by which
 * a scanner tells a key from other text and a typing error is found without a look into the database. The digits of
 * base 62 make it one word to a double click.
 */
export function makeApiKey(): string {
  const body = PREFIX + base62(BigInt(`0x${randomBytes(32).toString('hex')}`), SECRET_LENGTH)
  return body + checksum(body)
}

/** True for a text that `makeApiKey` may have made, whether or not it ever did. */
export function isApiKey(text: string): boolean {
  return shape.test(text) && text.endsWith(checksum(text.slice(0, -CHECKSUM_LENGTH)))
}

/**
 * The SHA-256 digest by which a key is known; 32 bytes whatever the key's length. A fast hash is enough,
 * because a key is random: there is no dictionary to try.
 */
export function hashApiKey(key: string): Buffer {
  return hash('sha256', key, 'buffer')
}

/** The id by which logs and the command line name a key: too short a part of its digest to look for the key with. */
export function apiKeyId(digest: Buffer): string {
  return digest.toString('hex', 0, 6)
}

function checksum(body: string): string {
  return base62(BigInt(crc32(body)), CHECKSUM_LENGTH)
}

function base62(value: bigint, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest /= 62n) text = DIGITS.charAt(Number(rest % 62n)) + text
  return text
}
