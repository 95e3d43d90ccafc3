import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { StatementRunner } from '../database/statement.ts'
import { type ApiKeyOwner, type FindApiKey, type FixedKey, hashApiKey, isApiKey } from './key.ts'
import { findActiveKeys } from './stored-keys.ts'

/** How often the cached keys are read. A revoked key is accepted for at most this long, plus one query. */
export const REFRESH_MS = 2000

/** Minimum between two reads, which limits what unknown keys can cost the database. */
export const MIN_READ_MS = 250

/** Maximum number of keys that a refresh keeps. It takes 45 ms of CPU time for them, and PostgreSQL 100 ms. */
const MAX_CACHED_KEYS = 10_000

interface Entry {
  readonly owner: ApiKeyOwner
  /** When the key ends, in `performance.now()` time: the clock of this machine may differ from that of PostgreSQL. */
  readonly endsAt: number
}

/**
 * The keys that a running server accepts: the fixed ones, and those of the database, which it reads when they are first used and then
 * every two seconds. It costs what is in use, however many keys there are. Logs when keys cannot be read, and when they can be again.
 */
export class ApiKeyCache {
  readonly #database: StatementRunner
  readonly #log: Logger
  readonly #closed = new AbortController()
  readonly #timer: NodeJS.Timeout
  /** By digest. A look-up need not be constant-time: callers cannot choose the digest of a key. */
  readonly #fixed: ReadonlyMap<string, ApiKeyOwner>
  #active = new Map<string, Entry>()
  /** Digests of the keys that the next read looks up. */
  #wanted = new Set<string>()
  #isStale = false
  #refreshedAt = 0
  #lastReadStart = Number.NEGATIVE_INFINITY
  #currentRead: Promise<void> = Promise.resolve()
  #nextRead: Promise<void> | undefined

  constructor(database: StatementRunner, fixed: readonly FixedKey[], log: Logger) {
    this.#database = database
    this.#fixed = new Map(fixed.map(({ name, key }) => [hashApiKey(key), { name }]))
    this.#log = log
    // The log has the error.
    this.#timer = setInterval(() => this.refresh().catch(() => {}), REFRESH_MS).unref()
  }

  /** Finds a key. A well-formed one that is not cached waits for the next read, and rejects if that fails. */
  find(key: string): ReturnType<FindApiKey> {
    const digest = hashApiKey(key)
    const owner = this.#fixed.get(digest)
    if (owner !== undefined) return owner
    const entry = this.#active.get(digest)
    if (entry !== undefined) return activeOwner(entry)
    if (!isApiKey(key)) return undefined
    this.#wanted.add(digest)
    return this.#read().then(() => activeOwner(this.#active.get(digest)))
  }

  /** When the cached keys were last refreshed, in `Date.now()` time; at first 0. */
  get refreshedAt(): number {
    return this.#refreshedAt
  }

  /** Reads the cached keys again. Rejects, and leaves the cache as it is, if the database cannot be queried. */
  async refresh(): Promise<void> {
    this.#active = new Map([...this.#active].slice(-MAX_CACHED_KEYS))
    for (const digest of this.#active.keys()) this.#wanted.add(digest)
    await this.#read()
    this.#refreshedAt = Date.now()
  }

  /** Stops refreshing. */
  async close(): Promise<void> {
    this.#closed.abort()
    clearInterval(this.#timer)
    await this.#currentRead.catch(() => {})
  }

  /** Coalesces reads: a caller joins only a read that has not started. */
  #read(): Promise<void> {
    this.#nextRead ??= (async () => {
      await this.#currentRead.catch(() => {})
      const wait = this.#lastReadStart + MIN_READ_MS - performance.now()
      await sleep(Math.max(0, wait), undefined, { signal: this.#closed.signal })
      this.#nextRead = undefined
      this.#lastReadStart = performance.now()
      this.#currentRead = this.#update()
      await this.#currentRead
    })()
    return this.#nextRead
  }

  async #update(): Promise<void> {
    const digests = [...this.#wanted]
    this.#wanted.clear()
    try {
      const keys = await findActiveKeys(this.#database, digests)
      const now = performance.now()
      for (const digest of digests) this.#active.delete(digest)
      for (const { digest, name, id, readOnly, remainingMs } of keys) {
        const owner = { name, id, ...(readOnly ? { isReadOnly: true } : {}) }
        this.#active.set(digest, { owner, endsAt: now + remainingMs })
      }
      if (this.#isStale) this.#log.info('the API keys can be read again')
      this.#isStale = false
    } catch (err) {
      if (!this.#isStale) this.#log.warn({ err }, 'the API keys cannot be read; the cached keys remain valid')
      this.#isStale = true
      throw err
    }
  }
}

function activeOwner(entry: Entry | undefined): ApiKeyOwner | undefined {
  return entry !== undefined && performance.now() < entry.endsAt ? entry.owner : undefined
}
