import { setTimeout as sleep } from 'node:timers/promises'
import { DatabaseUnavailableError } from '../database/failures.ts'
import type { ApiKeyOwner, FindApiKey } from './fixed-keys.ts'
import { apiKeyId, hashApiKey, isApiKey } from './key.ts'
import type { ApiKeyRepository, KnownKey } from './repository.ts'

/** How often the directory reads and writes, in milliseconds. */
export interface ApiKeyIntervals {
  /** Between two reads of the active keys: a revoked key is refused after at most this and one query. */
  readonly refreshMs: number
  /** The shortest time between two reads: limits what requests with unknown keys can cost the database. */
  readonly minRefreshMs: number
  /** Between two writes of the last use of a key that is in use. */
  readonly lastUseMs: number
}

export const apiKeyIntervals: ApiKeyIntervals = { refreshMs: 2000, minRefreshMs: 250, lastUseMs: 60_000 }

/** The most unknown keys that one read looks for among those that have ended, and the most ended keys that are kept. */
const MAX_PRESENTED = 100
const MAX_ENDED = 1000

/** The live keys of the database, and the ended ones that are still presented, kept in memory by a running server. */
export interface ApiKeyDirectory {
  /**
   * Finds a key in memory. One that is not there but is well-formed may have been made a moment ago: it waits for the
   * keys to be read again, together with all others that wait. The promise is rejected when they cannot be read. The
   * same read finds a key that has ended, so that whoever refuses it can say whose it was.
   */
  readonly find: FindApiKey
  /** How many keys are known. */
  readonly size: number
  /** When each name's last key ends, as `Date.now()` counts; without names that have a key without an end. */
  endings(): ReadonlyMap<string, number>
  /** When they were last read, as `Date.now()` counts; 0 before the first time. */
  readonly readAt: number
  /** Reads the keys; rejected when the database cannot be asked, and those last known stay. */
  refresh(): Promise<void>
  /** Stops the reading. */
  close(): Promise<void>
}

export interface ApiKeyDirectoryOptions {
  readonly repository: ApiKeyRepository
  /** Called when the keys could not be read after they could, and the keys last known go on being used. */
  readonly onStale: (error: unknown) => void
  /** Called when they could be read again. */
  readonly onFresh: () => void
  /** Called when it could not be noted which keys were used. */
  readonly onUseLost: (error: unknown) => void
  readonly intervals: ApiKeyIntervals
}

interface Entry {
  readonly digest: Buffer
  readonly owner: ApiKeyOwner
  /** When the key ends by itself, as `Date.now()` counts, and whose it was from then on. */
  endsAt: number
  readonly ended: ApiKeyOwner
  /** When it was last used, by this process and as the database has it. */
  usedAt: number
  notedAt: number
}

/** Opens the directory, empty; it reads the keys at the first `refresh` and from then on by itself. */
export function openApiKeyDirectory(options: ApiKeyDirectoryOptions): ApiKeyDirectory {
  const { repository, onStale, onFresh, onUseLost, intervals } = options
  const closed = new AbortController()
  // By digest: what a comparison with a stored one tells by its timing is of no use to somebody who cannot choose
  // the digest of what they present.
  let entries = new Map<string, Entry>()
  /** Keys that were presented after their end, the first found first. */
  const ended = new Map<string, ApiKeyOwner>()
  /** The digests that the next read looks for. */
  const presented = new Map<string, Buffer>()
  let stale = false
  let readAt = 0
  let lastRead = Number.NEGATIVE_INFINITY
  let underWay: Promise<void> = Promise.resolve()
  let next: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined

  async function read(): Promise<void> {
    try {
      const asked = [...presented.values()]
      presented.clear()
      const known = entries
      const live = new Map<string, Entry>()
      for (const key of await repository.live(asked)) {
        const id = textOf(key.digest)
        const entry = entryOf(key, known.get(id))
        if (key.state === 'expired' || key.state === 'revoked') noteEnded(id, entry.ended)
        else live.set(id, entry)
      }
      entries = live
      readAt = Date.now()
      if (stale) onFresh()
      stale = false
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) error.countLoss()
      if (!stale) onStale(error)
      stale = true
      throw error
    }
  }

  function noteEnded(id: string, owner: ApiKeyOwner): void {
    ended.set(id, owner)
    const [oldest] = ended.keys()
    if (ended.size > MAX_ENDED && oldest !== undefined) ended.delete(oldest)
  }

  /** A read that begins after this call, shared by all who ask before it begins. */
  function refresh(): Promise<void> {
    next ??= (async () => {
      await underWay.catch(() => {})
      await sleep(Math.max(0, lastRead + intervals.minRefreshMs - performance.now()), undefined, {
        signal: closed.signal,
      })
      next = undefined
      lastRead = performance.now()
      underWay = read()
      await underWay
    })()
    return next
  }

  async function noteUses(): Promise<void> {
    const uses = [...entries.values()]
      .filter(({ usedAt, notedAt }) => usedAt - notedAt >= intervals.lastUseMs)
      .map(({ digest, usedAt }) => ({ digest, usedAt: new Date(usedAt) }))
    if (uses.length > 0) await repository.markUsed(uses).catch(onUseLost)
  }

  async function tick(): Promise<void> {
    // It has been reported, once for all reads in a row that fail.
    await refresh().catch(() => {})
    if (!stale) await noteUses()
    schedule()
  }

  function schedule(): void {
    if (!closed.signal.aborted) timer = setTimeout(tick, intervals.refreshMs).unref()
  }

  function known(id: string): ApiKeyOwner | undefined {
    const entry = entries.get(id)
    if (entry === undefined) return ended.get(id)
    const now = Date.now()
    if (entry.endsAt <= now) return entry.ended
    entry.usedAt = now
    return entry.owner
  }

  schedule()

  return {
    find(key) {
      if (!isApiKey(key)) return undefined
      const digest = hashApiKey(key)
      const id = textOf(digest)
      const owner = known(id)
      if (owner !== undefined) return owner
      if (presented.size < MAX_PRESENTED) presented.set(id, digest)
      return refresh().then(() => known(id))
    },

    get size() {
      return entries.size
    },

    endings() {
      const endings = new Map<string, number>()
      for (const { owner, endsAt } of entries.values()) {
        endings.set(owner.name, Math.max(endsAt, endings.get(owner.name) ?? 0))
      }
      return new Map([...endings].filter(([, endsAt]) => Number.isFinite(endsAt)))
    },

    get readAt() {
      return readAt
    },

    refresh,

    async close() {
      closed.abort()
      clearTimeout(timer)
      await underWay.catch(() => {})
    },
  }
}

function entryOf(
  { digest, name, state, isReadOnly, endsAt, lastUsedAt }: KnownKey,
  known: Entry | undefined,
): Entry {
  const notedAt = lastUsedAt?.getTime() ?? Number.NEGATIVE_INFINITY
  const isUnchanged = known !== undefined && (known.owner.isReadOnly ?? false) === isReadOnly
  const own = { name, id: apiKeyId(digest), ...(isReadOnly ? { isReadOnly } : {}) }
  const owner = isUnchanged ? known.owner : own
  return {
    digest,
    owner,
    ended: { ...owner, ended: state === 'ending' || state === 'revoked' ? 'revoked' : 'expired' },
    endsAt: endsAt?.getTime() ?? Number.POSITIVE_INFINITY,
    usedAt: Math.max(known?.usedAt ?? notedAt, notedAt),
    notedAt,
  }
}

function textOf(digest: Buffer): string {
  return digest.toString('latin1')
}
