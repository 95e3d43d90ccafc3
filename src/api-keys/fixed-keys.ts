import { timingSafeEqual } from 'node:crypto'
import { hashApiKey } from './key.ts'

/** Who a request comes from. Name and id are for logs; the key itself is never kept. */
export interface ApiKeyOwner {
  readonly name: string
  /** Tells the keys of one name apart; a key of the configuration has none. */
  readonly id?: string
  /** Whether the key lets its holder read, and change nothing. */
  readonly isReadOnly?: boolean
  /** Why the key lets nobody in any more; absent where it does. */
  readonly ended?: 'expired' | 'revoked'
}

/**
 * Returns who a presented key belongs to, or undefined where no such key is known; a promise only where that is not
 * known at once. An owner whose key has ended must be refused. Rejects if the key cannot be checked.
 */
export type FindApiKey = (key: string) => ApiKeyOwner | undefined | Promise<ApiKeyOwner | undefined>

/** A key that the configuration fixes, and the name by which logs speak of it. */
export interface FixedKey {
  readonly name: string
  readonly key: string
}

/**
 * Finds keys in a fixed list. An empty list lets nobody in. It compares digests of one length with every entry,
 * and so tells by its timing neither which key was close nor where in the list it stands.
 */
export function fixedApiKeys(keys: readonly FixedKey[]): (key: string) => ApiKeyOwner | undefined {
  const known = keys.map(({ name, key }) => ({ owner: { name }, digest: hashApiKey(key) }))
  return (key) => {
    const digest = hashApiKey(key)
    let found: ApiKeyOwner | undefined
    for (const entry of known) {
      if (timingSafeEqual(entry.digest, digest)) found = entry.owner
    }
    return found
  }
}
