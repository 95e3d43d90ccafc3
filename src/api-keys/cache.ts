import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { StatementRunner } from '../database/database.ts'
import { DatabaseUnavailableError } from '../database/errors.ts'
import { type ApiKeyOwner, type FindApiKey, hashApiKey, isApiKey } from './key.ts'
import { type ApiKey, endOf, findActiveKeys, recordUses } from './stored-keys.ts'

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

/** The time in which a key is valid, in `Date.now()` time. */
export interface KeyLifetime {
  readonly createdAt: number
  /** When the key expires or its revocation takes effect. */
  readonly validUntil: number
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

/**
 * The key cache of a running server: the active keys of the database, and inactive ones that are still presented. Logs when the
 * keys cannot be read, once for consecutive failures, and when they can be read again.
 */
export class ApiKeyCache {
  readonly #database: StatementRunner
  readonly #log: Logger
  readonly #intervals: ApiKeyIntervals
  readonly #closed = new AbortController()
  /** By digest. Looking it up need not be constant-time: callers cannot choose the digest of the key that they present. */
  #active = new Map<string, Entry>()
  /** Expired and revoked keys that were presented, oldest lookup first. */
  readonly #inactive = new Map<string, ApiKeyOwner>()
  /** Digests that the next read looks for. */
  readonly #lookups = new Map<string, Buffer>()
  #isStale = false
  #readAt = 0
  #lastReadStart = Number.NEGATIVE_INFINITY
  #currentRead: Promise<void> = Promise.resolve()
  #nextRead: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  /** The cache is empty until the first `refresh`. From now on, it reads the keys periodically. */
  constructor(database: StatementRunner, intervals: ApiKeyIntervals, log: Logger) {
    this.#database = database
    this.#intervals = intervals
    this.#log = log
    this.#scheduleRefresh()
  }

  /**
   * Finds a key in the cache. A well-formed key that is not cached may have been created a moment ago, so it waits for the next
   * read, which all waiting callers share. The promise rejects if that read fails. The same read also finds a key that has
   * expired or was revoked, so that the log can say whose it was.
   */
  find(key: string): ReturnType<FindApiKey> {
    if (!isApiKey(key)) return undefined
    const digest = hashApiKey(key)
    const id = mapKeyOf(digest)
    const owner = this.#findCached(id)
    if (owner !== undefined) return owner
    if (this.#lookups.size < MAX_LOOKUPS_PER_READ) this.#lookups.set(id, digest)
    return this.refresh().then(() => this.#findCached(id))
  }

  /** Number of active keys. */
  get size(): number {
    return this.#active.size
  }

  /** When the keys were last read, in `Date.now()` time; 0 before the first read. */
  get readAt(): number {
    return this.#readAt
  }

  /** Returns the lifetime of the key of each name that expires last. Omits names with a key that never expires. */
  lifetimes(): ReadonlyMap<string, KeyLifetime> {
    const lifetimes = new Map<string, KeyLifetime>()
    for (const { owner, createdAt, validUntil } of this.#active.values()) {
      if (validUntil <= (lifetimes.get(owner.name)?.validUntil ?? 0)) continue
      lifetimes.set(owner.name, { createdAt, validUntil })
    }
    return new Map([...lifetimes].filter(([, { validUntil }]) => Number.isFinite(validUntil)))
  }

  /**
   * Reads the keys. Rejects if the database cannot be queried; the cache then keeps the keys of the last read. Coalesces reads: a
   * caller joins only a read that has not started.
   */
  refresh(): Promise<void> {
    this.#nextRead ??= (async () => {
      await this.#currentRead.catch(() => {})
      const wait = this.#lastReadStart + this.#intervals.minRefreshMs - performance.now()
      await sleep(Math.max(0, wait), undefined, { signal: this.#closed.signal })
      this.#nextRead = undefined
      this.#lastReadStart = performance.now()
      this.#currentRead = this.#read()
      await this.#currentRead
    })()
    return this.#nextRead
  }

  /** Stops refreshing the cache. */
  async close(): Promise<void> {
    this.#closed.abort()
    clearTimeout(this.#timer)
    await this.#currentRead.catch(() => {})
  }

  #findCached(id: string): ApiKeyOwner | undefined {
    const entry = this.#active.get(id)
    if (entry === undefined) return this.#inactive.get(id)
    const now = Date.now()
    if (entry.validUntil <= now) return entry.invalidOwner
    entry.usedAt = now
    return entry.owner
  }

  async #read(): Promise<void> {
    try {
      const digests = [...this.#lookups.values()]
      this.#lookups.clear()
      const previous = this.#active
      const current = new Map<string, Entry>()
      for (const { digest, key } of await findActiveKeys(this.#database, digests)) {
        const id = mapKeyOf(digest)
        const entry = entryOf(digest, key, previous.get(id)?.usedAt)
        if (key.state === 'expired' || key.state === 'revoked') this.#addInactive(id, entry.invalidOwner)
        else current.set(id, entry)
      }
      this.#active = current
      this.#readAt = Date.now()
      if (this.#isStale) this.#log.info('the API keys can be read again')
      this.#isStale = false
    } catch (err) {
      if (err instanceof DatabaseUnavailableError) err.countFailure()
      if (!this.#isStale) this.#log.warn({ err }, 'the API keys cannot be read; the cached keys remain valid')
      this.#isStale = true
      throw err
    }
  }

  #addInactive(id: string, owner: ApiKeyOwner): void {
    this.#inactive.set(id, owner)
    const [oldest] = this.#inactive.keys()
    if (this.#inactive.size > MAX_INACTIVE_KEYS && oldest !== undefined) this.#inactive.delete(oldest)
  }

  #scheduleRefresh(): void {
    if (this.#closed.signal.aborted) return
    this.#timer = setTimeout(async () => {
      // The log has the error.
      await this.refresh().catch(() => {})
      if (!this.#isStale && !this.#closed.signal.aborted) await this.#recordUses()
      this.#scheduleRefresh()
    }, this.#intervals.refreshMs).unref()
  }

  async #recordUses(): Promise<void> {
    const { lastUseMs } = this.#intervals
    const uses = [...this.#active.values()].filter(
      ({ usedAt, recordedUseAt }) => usedAt - recordedUseAt >= lastUseMs,
    )
    if (uses.length === 0) return
    await recordUses(this.#database, uses).catch((err: unknown) =>
      this.#log.warn({ err }, 'the last use of API keys could not be recorded'),
    )
  }
}

function entryOf(digest: Buffer, key: ApiKey, usedBefore = Number.NEGATIVE_INFINITY): Entry {
  const { id, name, state, readOnly, createdAt, lastUsedAt } = key
  const recordedUseAt = lastUsedAt?.getTime() ?? Number.NEGATIVE_INFINITY
  const owner = { name, id, ...(readOnly ? { isReadOnly: true } : {}) }
  return {
    digest,
    owner,
    invalidOwner: {
      ...owner,
      invalidReason: state === 'ending' || state === 'revoked' ? 'revoked' : 'expired',
    },
    createdAt: createdAt.getTime(),
    validUntil: endOf(key)?.getTime() ?? Number.POSITIVE_INFINITY,
    usedAt: Math.max(usedBefore, recordedUseAt),
    recordedUseAt,
  }
}

function mapKeyOf(digest: Buffer): string {
  return digest.toString('latin1')
}
