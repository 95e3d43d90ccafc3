import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { StatementRunner } from '../database/database.ts'
import { type ApiKeyOwner, type FindApiKey, hashApiKey, isApiKey } from './key.ts'
import { type ActiveKey, endOf, listActiveKeys } from './stored-keys.ts'

/** How often the key cache reads. */
export interface ApiKeyIntervals {
  /** Between two reads of the active keys. A revoked key is accepted for at most this long, plus one query. */
  readonly refreshMs: number
  /** Minimum time between two reads. It limits what requests with unknown keys can cost the database. */
  readonly minRefreshMs: number
}

export const apiKeyIntervals: ApiKeyIntervals = { refreshMs: 2000, minRefreshMs: 250 }

interface Entry {
  readonly owner: ApiKeyOwner
  /** When the key expires or its revocation takes effect, in milliseconds since 1970 by the clock of PostgreSQL. */
  readonly validUntil: number
  /** When the key ends, in `performance.now()` time: the clock of this machine may differ from that of PostgreSQL. */
  readonly endsAt: number
}

/**
 * The key cache of a running server: the active keys of the database. Logs when the keys cannot be read, once for consecutive
 * failures, and when they can be read again.
 */
export class ApiKeyCache {
  readonly #database: StatementRunner
  readonly #log: Logger
  readonly #intervals: ApiKeyIntervals
  readonly #closed = new AbortController()
  readonly #timer: NodeJS.Timeout
  /** By digest. Looking it up need not be constant-time: callers cannot choose the digest of the key that they present. */
  #active = new Map<string, Entry>()
  #isStale = false
  #readAt = 0
  #lastReadStart = Number.NEGATIVE_INFINITY
  #currentRead: Promise<void> = Promise.resolve()
  #nextRead: Promise<void> | undefined

  /** The cache is empty until the first `refresh`. From now on, it reads the keys periodically. */
  constructor(database: StatementRunner, intervals: ApiKeyIntervals, log: Logger) {
    this.#database = database
    this.#intervals = intervals
    this.#log = log
    // The log has the error.
    this.#timer = setInterval(() => this.refresh().catch(() => {}), intervals.refreshMs).unref()
  }

  /**
   * Finds a key in the cache. A well-formed key that is not cached may have been created a moment ago, so it waits for the next
   * read, which all waiting callers share. The promise rejects if that read fails.
   */
  find(key: string): ReturnType<FindApiKey> {
    if (!isApiKey(key)) return undefined
    const digest = mapKeyOf(hashApiKey(key))
    const entry = this.#active.get(digest)
    if (entry !== undefined) return activeOwner(entry)
    return this.refresh().then(() => activeOwner(this.#active.get(digest)))
  }

  /** Number of active keys. */
  get size(): number {
    return this.#active.size
  }

  /** When the keys were last read, in `Date.now()` time; 0 before the first read. */
  get readAt(): number {
    return this.#readAt
  }

  /** Returns until when, in milliseconds since 1970, each name has a valid key. Omits names with a key that never expires. */
  validity(): ReadonlyMap<string, number> {
    const validity = new Map<string, number>()
    for (const { owner, validUntil } of this.#active.values())
      validity.set(owner.name, Math.max(validUntil, validity.get(owner.name) ?? 0))
    return new Map([...validity].filter(([, validUntil]) => Number.isFinite(validUntil)))
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
    clearInterval(this.#timer)
    await this.#currentRead.catch(() => {})
  }

  async #read(): Promise<void> {
    try {
      const keys = await listActiveKeys(this.#database)
      const now = performance.now()
      this.#active = new Map(keys.map((key) => [mapKeyOf(key.digest), entryOf(key, now)]))
      this.#readAt = Date.now()
      if (this.#isStale) this.#log.info('the API keys can be read again')
      this.#isStale = false
    } catch (err) {
      if (!this.#isStale) this.#log.warn({ err }, 'the API keys cannot be read; the cached keys remain valid')
      this.#isStale = true
      throw err
    }
  }
}

function entryOf(key: ActiveKey, now: number): Entry {
  const { name, id, readOnly, remainingMs } = key
  const end = endOf(key)
  return {
    owner: { name, id, ...(readOnly ? { isReadOnly: true } : {}) },
    validUntil: end === null ? Number.POSITIVE_INFINITY : Date.parse(end),
    endsAt: now + (remainingMs ?? Number.POSITIVE_INFINITY),
  }
}

function activeOwner(entry: Entry | undefined): ApiKeyOwner | undefined {
  return entry !== undefined && performance.now() < entry.endsAt ? entry.owner : undefined
}

function mapKeyOf(digest: Buffer): string {
  return digest.toString('latin1')
}
