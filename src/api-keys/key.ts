import { hash, randomBytes } from 'node:crypto'

/** A new API key: a prefix that people and secret scanners recognise, then 256 random bits in base64url. */
export function makeApiKey(): string {
  return `inv_${randomBytes(32).toString('base64url')}`
}

/**
 * The SHA-256 digest by which a key is known; 32 bytes whatever the key's length. A fast hash is enough,
 * because a key is random: there is no dictionary to try.
 */
export function hashApiKey(key: string): Buffer {
  return hash('sha256', key, 'buffer')
}
