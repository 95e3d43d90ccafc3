import type { FastifyBaseLogger } from 'fastify'
import { StandbyError } from '../../database/standby.ts'
import type { InventoryRepository } from '../repository.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { ActiveDownloads } from './active-downloads.ts'
import { coalesceReads } from './coalesce-reads.ts'
import type { MonitoredStandby } from './monitored-standby.ts'
import { entriesOfLines, withChanges } from './pieces.ts'
import type { ListReads, ListSource, ListState, ListValidator } from './reads.ts'
import { Snapshot, snapshotOfLines } from './snapshot.ts'

/** A list and the state that it was read from, which is undefined if later changes cannot be found from it. */
interface CachedList {
  readonly snapshot: Snapshot
  readonly state: ListState | undefined
}

/**
 * How many changed entries are worth reading. Finding one by its id takes PostgreSQL as long as reading ten in order, so
 * beyond a thirty-second of a list it is faster to read all of them; for a short list, the statement itself counts more.
 */
const worthReading = (count: number): number => Math.max(Math.min(64, count >> 2), count >> 5)

/**
 * The longest list whose changes are read without asking first whether there are any, where they are expected. That saves
 * a round trip, which takes as long as the check of about so many entries. The read takes a lock on the table, so it may
 * fail where the question would not.
 */
const MAX_UNASKED_ENTRIES = 4096

/**
 * Returns the list. A caller gets the entries as of a moment after its call, so with every update that was acknowledged
 * before, by any process. One read serves all callers that wait for it. Where the primary says that nothing was committed
 * since the last read, no entry is read at all, and else those that were written since: from the standby, if there is one
 * that can be used, or from the primary.
 *
 * @throws {DatabaseUnavailableError} out of the returned function, when no answer can be had
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

  const logSource = ({ version, state }: ListSource): void => {
    const comparable = state !== undefined
    if (known?.version === version && known.comparable === comparable) return
    known = { version, comparable }
    log.info(known, comparable ? 'lists are reused until there is a commit' : 'every list is read in full')
  }

  /** Returns undefined if the changes are not known, are too many, or include removals. */
  const readChanges = async (
    reads: ListReads,
    former: Snapshot,
    state: ListState,
  ): Promise<CachedList | undefined> => {
    const changes = await reads.changesSince(state, worthReading(former.count))
    if (changes === undefined) return undefined
    if (isSame(changes.state.validator, state.validator)) return { snapshot: former, state }
    // The commits were to other tables or databases.
    if (changes.lines.length === 0 && changes.count === former.count)
      return { snapshot: former, state: changes.state }
    const latest = new Snapshot(await withChanges(former.pieces, entriesOfLines(changes.lines)), true)
    if (latest.count !== changes.count) return undefined
    return { snapshot: latest, state: changes.state }
  }

  const readWhole = async (reads: ListReads, former: Snapshot | undefined): Promise<CachedList> => {
    // The state is from before the entries are read, so a commit in between is read again and never missed.
    let state: ListState | undefined
    const lines = reads.lines((source) => {
      state = source.state
      logSource(source)
    })
    return { snapshot: await snapshotOfLines(lines, former), state }
  }

  /** Whether the last read found changes, so that the next one probably does. */
  let expectsChanges = false

  /** Returns the list as it is now, made from the cached one; undefined if it has to be read whole. */
  const update = async (former: Snapshot, state: ListState): Promise<CachedList | undefined> => {
    if (!expectsChanges || former.count > MAX_UNASKED_ENTRIES) {
      const validator = await repository.validator()
      if (isSame(validator, state.validator)) return { snapshot: former, state }
      if (!repository.sharesHistory(state, validator)) return undefined
    }
    await downloads.waitForMemory(former)
    // Asks first the next time, unless there are changes.
    expectsChanges = false
    return readChanges(repository, former, state)
  }

  /** Caches a list that was made from the changes since the last one, or found unchanged. */
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

  const readFromPrimary = async (): Promise<Snapshot> => {
    const { snapshot: former, state } = cached ?? {}
    if (former !== undefined && state !== undefined) {
      const latest = await update(former, state)
      if (latest !== undefined) {
        expectsChanges = latest.state !== state
        return cacheLatest(former, state, latest)
      }
    }
    await downloads.waitForMemory(former)
    return cacheWhole(former, await readWhole(repository, former))
  }

  /** Returns undefined if the standby cannot be read now. */
  const readFromStandby = async (standby: MonitoredStandby): Promise<Snapshot | undefined> => {
    const { snapshot: former, state } = cached ?? {}
    try {
      const target = await standby.position()
      const reads = standby.at(target)
      if (former !== undefined && state !== undefined) {
        if (isSame(target.validator, state.validator)) {
          return cacheLatest(former, state, { snapshot: former, state })
        }
        await downloads.waitForMemory(former)
        const latest = await readChanges(reads, former, state)
        if (latest !== undefined) return cacheLatest(former, state, latest)
      }
      await downloads.waitForMemory(former)
      return cacheWhole(former, await readWhole(reads, former))
    } catch (error) {
      if (error instanceof StandbyError) return undefined
      throw error
    }
  }

  const read = async (): Promise<Snapshot> => {
    const { standby } = repository
    // A table whose changes can go unnoticed may have rows elsewhere, which a standby need not have.
    const isSuited = cached === undefined || cached.state !== undefined
    const latest = standby?.isInUse && isSuited ? await readFromStandby(standby) : undefined
    return latest ?? readFromPrimary()
  }

  return coalesceReads(read, () => lists.joined++)
}

/** The same list in place of an equal former one, which may have been compressed before. */
function keepCompressed(former: Snapshot | undefined, { snapshot, state }: CachedList): CachedList {
  return { snapshot: former?.etag === snapshot.etag ? former : snapshot, state }
}

function isSame(one: ListValidator | undefined, other: ListValidator | undefined): boolean {
  return one !== undefined && one.source === other?.source && one.snapshot === other.snapshot
}
