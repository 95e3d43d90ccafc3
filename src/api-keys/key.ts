import { hash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** Identifies the caller of a request. The key itself is never kept. */
export interface ApiKeyOwner {
  readonly name: string
  /** Distinguishes the keys of one name; keys from the configuration have none. */
  readonly id?: string
  /** Whether the key may be used for reading only. */
  readonly isReadOnly?: boolean
}

/** A key from the configuration, and the name that logs show for it. */
export interface FixedKey {
  readonly name: string
  readonly key: string
}

/**
 * Returns the owner of a key, or undefined if it is not accepted now: a promise, which may reject, only if the key has to be looked up
 * in the database.
 */
export type FindApiKey = (key: string) => ApiKeyOwner | undefined | Promise<ApiKeyOwner | undefined>

const PREFIX = 'inv_'

/** Base-62 digits that hold 256 random bits, and a CRC-32. */
const SECRET_LENGTH = 43
const CHECKSUM_LENGTH = 6

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const KEY_PATTERN = new RegExp(`^${PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}$`)

/**
 * Generates an API key: a prefix that people and secret scanners recognize, 256 random bits, and the CRC-32 of both, which catches
 * typing errors without a query. Base 62 lets a double click select the whole key.
 */
export function makeApiKey(): string {
  const body = PREFIX + base62(BigInt(`0x${randomBytes(32).toString('hex')}`), SECRET_LENGTH)
  return body + checksum(body)
}

/** Whether a text has the form and the checksum of an API key. */
export function isApiKey(text: string): boolean {
  return KEY_PATTERN.test(text) && text.endsWith(checksum(text.slice(0, -CHECKSUM_LENGTH)))
}

/** Returns the SHA-256 digest of a key in hexadecimal digits. A fast hash is enough: keys are random, so no dictionary has them. */
export function hashApiKey(key: string): string {
  return hash('sha256', key, 'hex')
}

function checksum(body: string): string {
  return base62(BigInt(crc32(body)), CHECKSUM_LENGTH)
}

function base62(value: bigint, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest /= 62n) text = DIGITS.charAt(Number(rest % 62n)) + text
  return text
}
