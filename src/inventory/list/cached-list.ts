import type { FastifyBaseLogger } from 'fastify'
import { lossOf } from '../../database/error-meaning.ts'
import type { InventoryRepository } from '../repository.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { ActiveDownloads } from './delivery/active-downloads.ts'
import { coalesceReads } from './reads/coalesce-reads.ts'
import type { ListState, ListValidator, WholeList } from './reads/reader.ts'
import { countEntries, withChanges } from './snapshot/pieces.ts'
import { Snapshot } from './snapshot/snapshot.ts'

/** A list and the state that it was read from. The state is undefined if later changes cannot be derived from it. */
interface CachedList {
  readonly snapshot: Snapshot
  readonly state: ListState | undefined
}

/**
 * Returns the maximum number of changed entries to look up; if more have changed, reading the whole list is faster. One
 * lookup takes PostgreSQL as long as reading ten entries in order, so the limit is 1/32 of a long list. For a short list,
 * the fixed cost of a statement dominates, so the limit is higher.
 */
const maxChanges = (count: number): number => Math.max(Math.min(64, count >> 2), count >> 5)

/**
 * Maximum length of a list whose changes are read without comparing the validators first, if changes are expected. Skipping
 * that comparison saves a round trip, which takes about as long as scanning this many entries. The drawback is that the
 * read locks the table, so it may fail although the comparison would succeed.
 */
const MAX_UNCHECKED_ENTRIES = 4096

/**
 * Returns a function that returns the list as of a moment after the call, so the list includes every update that any
 * process acknowledged before. One read serves all callers that wait for it. If PostgreSQL reports no commit since the
 * last read, the function returns the cached list. Otherwise it reads the entries that were written since then, or all
 * entries if the changes are unknown or too many. If a connection is lost, it reads once more.
 *
 * @throws {DatabaseUnavailableError} from the returned function, if PostgreSQL is unavailable
 */
export function inventoryList(
  repository: InventoryRepository,
  downloads: ActiveDownloads,
  statistics: InventoryStatistics,
  log: FastifyBaseLogger,
): () => Promise<Snapshot> {
  const { lists } = statistics
  let cached: CachedList | undefined
  let known: { readonly version: string; readonly comparable: boolean } | undefined

  const logSource = ({ version, state }: WholeList): void => {
    const comparable = state !== undefined
    if (known?.version === version && known.comparable === comparable) return
    known = { version, comparable }
    log.info(known, comparable ? 'lists are reused until there is a commit' : 'every list is read in full')
  }

  /** Returns the list with the changes applied, or undefined if they are unknown, too many, or include removals. */
  const readChanges = async (former: Snapshot, state: ListState): Promise<CachedList | undefined> => {
    const changes = await repository.changesSince(state, maxChanges(former.count))
    if (changes === undefined) return undefined
    if (isSame(changes.state.validator, state.validator)) return { snapshot: former, state }
    // All commits since then changed other tables or databases.
    if (changes.lines === '' && changes.count === former.count)
      return { snapshot: former, state: changes.state }
    const pieces = await withChanges(former.pieces, changes.lines)
    if (pieces === undefined || countEntries(pieces) !== changes.count) return undefined
    return { snapshot: new Snapshot(pieces), state: changes.state }
  }

  const readWhole = async (former: Snapshot | undefined): Promise<CachedList> => {
    const whole = await repository.readAll(former?.pieces ?? [])
    logSource(whole)
    return { snapshot: new Snapshot(whole.pieces), state: whole.state }
  }

  /** Whether the last read found changes, so that the next one probably finds some, too. */
  let expectsChanges = false

  /** Brings the cached list up to date. Returns undefined if the whole list must be read. */
  const update = async (former: Snapshot, state: ListState): Promise<CachedList | undefined> => {
    if (!expectsChanges || former.count > MAX_UNCHECKED_ENTRIES) {
      const validator = await repository.validator()
      if (isSame(validator, state.validator)) return { snapshot: former, state }
      if (validator.source !== state.validator.source) return undefined
    }
    await downloads.waitForMemory(former)
    // The next read compares the validators first, unless this one finds changes.
    expectsChanges = false
    return readChanges(former, state)
  }

  /** Counts the outcome, and caches the list if it has changed. */
  const cacheLatest = (former: Snapshot, state: ListState, latest: CachedList): Snapshot => {
    if (latest.state === state) {
      lists.unchanged++
      return former
    }
    lists.changed++
    cached = keepCompressed(former, latest)
    return cached.snapshot
  }

  const cacheWhole = (former: Snapshot | undefined, latest: CachedList): Snapshot => {
    lists.read++
    cached = keepCompressed(former, latest)
    return cached.snapshot
  }

  const readLatest = async (): Promise<Snapshot> => {
    const { snapshot: former, state } = cached ?? {}
    if (former !== undefined && state !== undefined) {
      const latest = await update(former, state)
      if (latest !== undefined) {
        expectsChanges = latest.state !== state
        return cacheLatest(former, state, latest)
      }
    }
    await downloads.waitForMemory(former)
    return cacheWhole(former, await readWhole(former))
  }

  /** Reads once more if the connection is lost meanwhile, because every caller that waits would get the error. */
  const read = async (): Promise<Snapshot> => {
    try {
      return await readLatest()
    } catch (error) {
      const reason = lossOf(error)
      if (reason === undefined) throw error
      log.warn({ reason }, 'a list is read again, because its database connection was lost')
      return readLatest()
    }
  }

  return coalesceReads(read, () => lists.joined++)
}

/** Returns the latest list, but with the former snapshot if both are equal, to keep its compressed representations. */
function keepCompressed(former: Snapshot | undefined, { snapshot, state }: CachedList): CachedList {
  return { snapshot: former?.etag === snapshot.etag ? former : snapshot, state }
}

function isSame(one: ListValidator, other: ListValidator): boolean {
  return one.source === other.source && one.snapshot === other.snapshot
}
