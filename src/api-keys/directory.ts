import { setTimeout as sleep } from 'node:timers/promises'
import type { ApiKeyOwner, FindApiKey } from './fixed-keys.ts'
import { hashApiKey, isApiKey } from './key.ts'
import type { ApiKeyRepository, LiveKey } from './repository.ts'

/** How often the live keys are read, in milliseconds: a revoked key is refused after at most this and one query. */
const REFRESH_INTERVAL = 2000

/** The shortest time between two reads, in milliseconds: all that requests with unknown keys can cost the database. */
const LEAST_INTERVAL = 250

/** How old the note of a key's last use may get while it is used, in milliseconds. */
const USE_INTERVAL = 60_000

/** The live keys of the database, kept in memory by a running server. */
export interface ApiKeyDirectory {
  /**
   * Finds a key in memory. One that is not there but is well-formed may have been made a moment ago: it waits for the
   * keys to be read again, together with all others that wait. The promise is rejected when they cannot be read.
   */
  readonly find: FindApiKey
  /** How many keys are known. */
  readonly size: number
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
}

interface Entry {
  readonly digest: Buffer
  readonly owner: ApiKeyOwner
  /** When the key ends by itself, as `Date.now()` counts. */
  endsAt: number
  /** When it was last used, by this process and as the database has it. */
  usedAt: number
  notedAt: number
}

/** Opens the directory, empty; it reads the keys at the first `refresh` and from then on by itself. */
export function openApiKeyDirectory(options: ApiKeyDirectoryOptions): ApiKeyDirectory {
  const { repository, onStale, onFresh, onUseLost } = options
  const closed = new AbortController()
  // By digest: what a comparison with a stored one tells by its timing is of no use to somebody who cannot choose
  // the digest of what they present.
  let entries = new Map<string, Entry>()
  let stale = false
  let readAt = 0
  let lastRead = Number.NEGATIVE_INFINITY
  let underWay: Promise<void> = Promise.resolve()
  let next: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined

  async function read(): Promise<void> {
    try {
      const known = entries
      entries = new Map(
        (await repository.live()).map((key) => {
          const id = textOf(key.digest)
          return [id, entryOf(key, known.get(id))]
        }),
      )
      readAt = Date.now()
      if (stale) onFresh()
      stale = false
    } catch (error) {
      if (!stale) onStale(error)
      stale = true
      throw error
    }
  }

  /** A read that begins after this call, shared by all who ask before it begins. */
  function refresh(): Promise<void> {
    next ??= (async () => {
      await underWay.catch(() => {})
      await sleep(Math.max(0, lastRead + LEAST_INTERVAL - performance.now()), undefined, {
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
      .filter(({ usedAt, notedAt }) => usedAt - notedAt >= USE_INTERVAL)
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
    if (!closed.signal.aborted) timer = setTimeout(tick, REFRESH_INTERVAL).unref()
  }

  function use(entry: Entry | undefined): ApiKeyOwner | undefined {
    const now = Date.now()
    if (entry === undefined || entry.endsAt <= now) return undefined
    entry.usedAt = now
    return entry.owner
  }

  schedule()

  return {
    find(key) {
      if (!isApiKey(key)) return undefined
      const id = textOf(hashApiKey(key))
      const entry = entries.get(id)
      return entry === undefined ? refresh().then(() => use(entries.get(id))) : use(entry)
    },

    get size() {
      return entries.size
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

function entryOf({ digest, name, endsAt, lastUsedAt }: LiveKey, known: Entry | undefined): Entry {
  const notedAt = lastUsedAt?.getTime() ?? Number.NEGATIVE_INFINITY
  return {
    digest,
    owner: known?.owner ?? { name },
    endsAt: endsAt?.getTime() ?? Number.POSITIVE_INFINITY,
    usedAt: Math.max(known?.usedAt ?? notedAt, notedAt),
    notedAt,
  }
}

function textOf(digest: Buffer): string {
  return digest.toString('latin1')
}
