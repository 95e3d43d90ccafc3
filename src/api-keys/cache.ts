import { setTimeout as sleep } from 'node:timers/promises'
import { DatabaseUnavailableError } from '../database/errors/errors.ts'
import { type ApiKeyOwner, apiKeyId, type FindApiKey, hashApiKey, isApiKey } from './key.ts'
import type { ApiKeyRecord, ApiKeyRepository } from './repository.ts'

/** How often the key cache reads and writes. */
export interface ApiKeyIntervals {
  /** Between two reads of the active keys. A revoked key is accepted for at most this long, plus one query. */
  readonly refreshMs: number
  /** Minimum time between two reads. It limits what requests with unknown keys can cost the database. */
  readonly minRefreshMs: number
  /** Between two writes of the last use of a key that is in use. */
  readonly lastUseMs: number
}

export const apiKeyIntervals: ApiKeyIntervals = { refreshMs: 2000, minRefreshMs: 250, lastUseMs: 60_000 }

/** Maximum unknown keys that one read looks for among the inactive ones. */
const MAX_LOOKUPS_PER_READ = 100

/** Maximum inactive keys kept in the cache. */
const MAX_INACTIVE_KEYS = 1000

/** The key cache of a running server: the active keys of the database, and inactive ones that are still presented. */
export interface ApiKeyCache {
  /**
   * Finds a key in the cache. A well-formed key that is not cached may have been created a moment ago, so it waits for
   * the next read, which all waiting callers share. The promise rejects if that read fails. The same read also finds a
   * key that has expired or was revoked, so that the log can say whose it was.
   */
  readonly find: FindApiKey
  /** Number of active keys. */
  readonly size: number
  /** The lifetime of the key of each name that expires last. Omits names with a key that never expires. */
  lifetimes(): ReadonlyMap<string, KeyLifetime>
  /** When the keys were last read, in `Date.now()` time; 0 before the first read. */
  readonly readAt: number
  /** Reads the keys. Rejects if the database cannot be queried; the cache then keeps the keys of the last read. */
  refresh(): Promise<void>
  /** Stops refreshing the cache. */
  close(): Promise<void>
}

/** The time in which a key is valid, in `Date.now()` time. */
export interface KeyLifetime {
  readonly createdAt: number
  /** When the key expires or its revocation takes effect. */
  readonly validUntil: number
}

export interface ApiKeyCacheOptions {
  readonly repository: ApiKeyRepository
  /** Called when a read fails, once for consecutive failures. The keys of the last successful read remain in use. */
  readonly onStale: (error: unknown) => void
  /** Called when a read succeeds after one that failed. */
  readonly onRecovered: () => void
  /** Called when the last use of keys could not be recorded. */
  readonly onUseNotRecorded: (error: unknown) => void
  readonly intervals: ApiKeyIntervals
}

interface Entry extends KeyLifetime {
  readonly digest: Buffer
  readonly owner: ApiKeyOwner
  /** The owner once the key has expired or is revoked. */
  readonly invalidOwner: ApiKeyOwner
  /** When this process or another one last saw the key used. */
  usedAt: number
  /** The last use that the database has recorded. */
  readonly recordedUseAt: number
}

/** Opens an empty key cache. It reads the keys on the first `refresh`, and periodically from now on. */
export function openApiKeyCache(options: ApiKeyCacheOptions): ApiKeyCache {
  const { repository, onStale, onRecovered, onUseNotRecorded, intervals } = options
  const closed = new AbortController()
  // Looking up by digest need not be constant-time: callers cannot choose the digest of the key that they present.
  let active = new Map<string, Entry>()
  /** Expired and revoked keys that were presented, oldest lookup first. */
  const inactive = new Map<string, ApiKeyOwner>()
  /** Digests that the next read looks for. */
  const lookups = new Map<string, Buffer>()
  let isStale = false
  let readAt = 0
  let lastReadStart = Number.NEGATIVE_INFINITY
  let currentRead: Promise<void> = Promise.resolve()
  let nextRead: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined

  async function read(): Promise<void> {
    try {
      const digests = [...lookups.values()]
      lookups.clear()
      const previous = active
      const current = new Map<string, Entry>()
      for (const record of await repository.findActive(digests)) {
        const id = mapKeyOf(record.digest)
        const entry = entryOf(record, previous.get(id))
        if (record.state === 'expired' || record.state === 'revoked') addInactive(id, entry.invalidOwner)
        else current.set(id, entry)
      }
      active = current
      readAt = Date.now()
      if (isStale) onRecovered()
      isStale = false
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) error.countFailure()
      if (!isStale) onStale(error)
      isStale = true
      throw error
    }
  }

  function addInactive(id: string, owner: ApiKeyOwner): void {
    inactive.set(id, owner)
    const [oldest] = inactive.keys()
    if (inactive.size > MAX_INACTIVE_KEYS && oldest !== undefined) inactive.delete(oldest)
  }

  /** Coalesces reads: a caller joins only a read that has not started. */
  function refresh(): Promise<void> {
    nextRead ??= (async () => {
      await currentRead.catch(() => {})
      await sleep(Math.max(0, lastReadStart + intervals.minRefreshMs - performance.now()), undefined, {
        signal: closed.signal,
      })
      nextRead = undefined
      lastReadStart = performance.now()
      currentRead = read()
      await currentRead
    })()
    return nextRead
  }

  async function recordUses(): Promise<void> {
    const uses = [...active.values()]
      .filter(({ usedAt, recordedUseAt }) => usedAt - recordedUseAt >= intervals.lastUseMs)
      .map(({ digest, usedAt }) => ({ digest, usedAt: new Date(usedAt) }))
    if (uses.length > 0) await repository.markUsed(uses).catch(onUseNotRecorded)
  }

  async function refreshPeriodically(): Promise<void> {
    // `onStale` has reported the error, once for consecutive failures.
    await refresh().catch(() => {})
    if (!isStale && !closed.signal.aborted) await recordUses()
    scheduleRefresh()
  }

  function scheduleRefresh(): void {
    if (!closed.signal.aborted) timer = setTimeout(refreshPeriodically, intervals.refreshMs).unref()
  }

  function findCached(id: string): ApiKeyOwner | undefined {
    const entry = active.get(id)
    if (entry === undefined) return inactive.get(id)
    const now = Date.now()
    if (entry.validUntil <= now) return entry.invalidOwner
    entry.usedAt = now
    return entry.owner
  }

  scheduleRefresh()

  return {
    find(key) {
      if (!isApiKey(key)) return undefined
      const digest = hashApiKey(key)
      const id = mapKeyOf(digest)
      const owner = findCached(id)
      if (owner !== undefined) return owner
      if (lookups.size < MAX_LOOKUPS_PER_READ) lookups.set(id, digest)
      return refresh().then(() => findCached(id))
    },

    get size() {
      return active.size
    },

    lifetimes() {
      const lifetimes = new Map<string, KeyLifetime>()
      for (const { owner, createdAt, validUntil } of active.values()) {
        if (validUntil <= (lifetimes.get(owner.name)?.validUntil ?? 0)) continue
        lifetimes.set(owner.name, { createdAt, validUntil })
      }
      return new Map([...lifetimes].filter(([, { validUntil }]) => Number.isFinite(validUntil)))
    },

    get readAt() {
      return readAt
    },

    refresh,

    async close() {
      closed.abort()
      clearTimeout(timer)
      await currentRead.catch(() => {})
    },
  }
}

/** Makes a cache entry. It keeps the owner object of the previous entry while the key's permissions are unchanged. */
function entryOf(
  { digest, name, state, isReadOnly, createdAt, validUntil, lastUsedAt }: ApiKeyRecord,
  previous: Entry | undefined,
): Entry {
  const recordedUseAt = lastUsedAt?.getTime() ?? Number.NEGATIVE_INFINITY
  const isUnchanged = previous !== undefined && (previous.owner.isReadOnly ?? false) === isReadOnly
  const newOwner = { name, id: apiKeyId(digest), ...(isReadOnly ? { isReadOnly } : {}) }
  const owner = isUnchanged ? previous.owner : newOwner
  const invalidReason = state === 'ending' || state === 'revoked' ? 'revoked' : 'expired'
  return {
    digest,
    owner,
    invalidOwner: { ...owner, invalidReason },
    createdAt: createdAt.getTime(),
    validUntil: validUntil?.getTime() ?? Number.POSITIVE_INFINITY,
    usedAt: Math.max(previous?.usedAt ?? recordedUseAt, recordedUseAt),
    recordedUseAt,
  }
}

function mapKeyOf(digest: Buffer): string {
  return digest.toString('latin1')
}
