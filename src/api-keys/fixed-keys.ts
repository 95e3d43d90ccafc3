import { timingSafeEqual } from 'node:crypto'
import { type ApiKeyOwner, hashApiKey } from './key.ts'

/** A key from the configuration, and the name that logs show for it. */
export interface FixedKey {
  readonly name: string
  readonly key: string
}

/**
 * Returns a lookup in a fixed list of keys; with an empty list it finds none. Each lookup compares the digest with every
 * entry in constant time, so its duration does not reveal which entry is similar or matches.
 */
export function fixedApiKeys(keys: readonly FixedKey[]): (key: string) => ApiKeyOwner | undefined {
  const entries = keys.map(({ name, key }) => ({ owner: { name }, digest: hashApiKey(key) }))
  return (key) => {
    const digest = hashApiKey(key)
    let found: ApiKeyOwner | undefined
    for (const entry of entries) {
      if (timingSafeEqual(entry.digest, digest)) found = entry.owner
    }
    return found
  }
}
