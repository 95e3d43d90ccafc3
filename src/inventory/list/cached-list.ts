import type { FastifyBaseLogger } from 'fastify'
import { StandbyError } from '../../database/standby.ts'
import type { InventoryRepository } from '../repository.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Readers } from './active-downloads.ts'
import { joinReads } from './coalesce-reads.ts'
import { entriesOfLines, withChanges } from './pieces.ts'
import type { ListReads, ListSource, ListState, ListValidator } from './reads.ts'
import { Snapshot, snapshotOfLines } from './snapshot.ts'
import type { StandbyReads } from './standby-reads.ts'

/** A list and the state that it was read from; undefined where later changes cannot be told from it. */
interface KeptList {
  readonly snapshot: Snapshot
  readonly state: ListState | undefined
}

/**
 * How many changed entries are worth reading. Finding one by its id takes PostgreSQL as long as reading ten in order, so
 * beyond a thirty-second of a list it is faster to read all of them; for a short list, the statement itself counts more.
 */
const worthReading = (count: number): number => Math.max(Math.min(64, count >> 2), count >> 5)

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
  readers: Readers,
  statistics: InventoryStatistics,
  log: FastifyBaseLogger,
): () => Promise<Snapshot> {
  const { lists } = statistics
  let kept: KeptList | undefined
  let known: { readonly version: string; readonly comparable: boolean } | undefined

  const logSource = ({ version, state }: ListSource): void => {
    const comparable = state !== undefined
    if (known?.version === version && known.comparable === comparable) return
    known = { version, comparable }
    log.info(known, comparable ? 'lists are reused until there is a commit' : 'every list is read in full')
  }

  /** Undefined where the changes cannot be told, are too many, or include removals. */
  const readChanges = async (
    reads: ListReads,
    former: Snapshot,
    state: ListState,
  ): Promise<KeptList | undefined> => {
    const changes = await reads.changesSince(state, worthReading(former.count))
    if (changes === undefined) return undefined
    if (isSame(changes.state.validator, state.validator)) return { snapshot: former, state }
    const latest = new Snapshot(await withChanges(former.pieces, entriesOfLines(changes.lines)), true)
    if (latest.count !== changes.count) return undefined
    return { snapshot: latest, state: changes.state }
  }

  const readWhole = async (reads: ListReads, former: Snapshot | undefined): Promise<KeptList> => {
    // Of a moment before the entries are read: a commit in between is read again, and never missed.
    let state: ListState | undefined
    const lines = reads.lines((source) => {
      state = source.state
      logSource(source)
    })
    return { snapshot: await snapshotOfLines(lines, former), state }
  }

  /**
   * Whether to read the changes without asking first whether there are any, which saves a round trip where there are. It
   * takes a lock on the table, so it may fail where the question would not.
   */
  let expectsChanges = false

  /** The list as it is now by what was kept, undefined where it has to be read whole. */
  const update = async (former: Snapshot, state: ListState): Promise<KeptList | undefined> => {
    if (!expectsChanges) {
      const validator = await repository.validator()
      if (isSame(validator, state.validator)) return { snapshot: former, state }
      if (!repository.sharesHistory(state, validator)) return undefined
    }
    await readers.makeRoom(former)
    // Asks first the next time, unless there are changes.
    expectsChanges = false
    return readChanges(repository, former, state)
  }

  /** Keeps a list that came about by the changes of the last one, or was found unchanged. */
  const keepLatest = (former: Snapshot, state: ListState, latest: KeptList): Snapshot => {
    if (latest.state === state) {
      lists.unchanged++
      return former
    }
    lists.changed++
    kept = keepCompressed(former, latest)
    return kept.snapshot
  }

  const keepWhole = (former: Snapshot | undefined, latest: KeptList): Snapshot => {
    lists.read++
    kept = keepCompressed(former, latest)
    return kept.snapshot
  }

  const readFromPrimary = async (): Promise<Snapshot> => {
    const { snapshot: former, state } = kept ?? {}
    if (former !== undefined && state !== undefined) {
      const latest = await update(former, state)
      if (latest !== undefined) {
        expectsChanges = latest.state !== state
        return keepLatest(former, state, latest)
      }
    }
    await readers.makeRoom(former)
    return keepWhole(former, await readWhole(repository, former))
  }

  /** Undefined where the standby cannot be read now. */
  const readFromStandby = async (standby: StandbyReads): Promise<Snapshot | undefined> => {
    const { snapshot: former, state } = kept ?? {}
    try {
      const position = await standby.position()
      const reads = standby.at(position)
      if (former !== undefined && state !== undefined) {
        if (isSame(position.validator, state.validator)) {
          return keepLatest(former, state, { snapshot: former, state })
        }
        await readers.makeRoom(former)
        const latest = await readChanges(reads, former, state)
        if (latest !== undefined) return keepLatest(former, state, latest)
      }
      await readers.makeRoom(former)
      return keepWhole(former, await readWhole(reads, former))
    } catch (error) {
      if (error instanceof StandbyError) return undefined
      throw error
    }
  }

  const read = async (): Promise<Snapshot> => {
    const { standby } = repository
    // A table whose changes can go unnoticed may have rows elsewhere, which a standby need not have.
    const isSuited = kept === undefined || kept.state !== undefined
    const latest = standby?.isInUse && isSuited ? await readFromStandby(standby) : undefined
    return latest ?? readFromPrimary()
  }

  return joinReads(read, () => lists.joined++)
}

/** The same list in place of an equal former one, which may have been compressed before. */
function keepCompressed(former: Snapshot | undefined, { snapshot, state }: KeptList): KeptList {
  return { snapshot: former?.etag === snapshot.etag ? former : snapshot, state }
}

function isSame(one: ListValidator | undefined, other: ListValidator | undefined): boolean {
  return one !== undefined && one.source === other?.source && one.snapshot === other.snapshot
}
