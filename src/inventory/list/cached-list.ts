import type { FastifyBaseLogger } from 'fastify'
import { hasReason } from '../../database/statement-error.ts'
import type { RequestMetrics } from '../../metrics/request-metrics.ts'
import type { ActiveDownloads } from './delivery/active-downloads.ts'
import { coalesceReads } from './reads/coalesce-reads.ts'
import type { ListReader, ListState } from './reads/reader.ts'
import { withChanges } from './serialized/chunks.ts'
import { SerializedList } from './serialized/serialized-list.ts'

/** A list and the state that it was read from. The state is undefined if later changes cannot be derived from it. */
interface CachedList {
  readonly list: SerializedList
  readonly state: ListState | undefined
}

/**
 * Returns how many changed entries to look up at most; if more have changed, reading the whole list is faster. One lookup takes
 * PostgreSQL as long as reading ten entries in order. For a short list, the fixed cost of a statement dominates.
 */
const maxChanges = (count: number): number => Math.max(Math.min(64, count >> 2), count >> 5)

/**
 * Maximum length of a list whose changes are read without comparing the validators first, if changes are expected. That saves a round
 * trip, which takes about as long as scanning this many entries; but the read locks the table, so it may fail where the comparison
 * would not.
 */
const MAX_UNCHECKED_ENTRIES = 4096

/** How long changes are not read after they took too long to find. */
const CHANGES_PAUSE_MS = 60_000

/**
 * Returns a function that returns the list as of a moment after the call, so that it includes every update that any process
 * acknowledged before. One read serves all callers that wait for it. If PostgreSQL reports no commit since the last one, the cached list
 * is returned. Otherwise, the entries that were written since then are read, or all, if the changes are unknown or too many, or not only
 * of entries that the list has.
 *
 * @throws {StatementError} from the returned function
 */
export function inventoryList(
  reader: ListReader,
  downloads: ActiveDownloads,
  { lists }: Pick<RequestMetrics, 'lists'>,
  log: FastifyBaseLogger,
): () => Promise<SerializedList> {
  let cached: CachedList | undefined
  /** Whether the last read found changed entries, so that the next one probably finds some, too. */
  let expectsChanges = false
  /** When changes may be read again, by `performance.now()`. */
  let changesPausedUntil = Number.NEGATIVE_INFINITY

  /** Returns undefined if the whole list must be read, now or, after an error, by the next call. */
  const readChanged = async (former: SerializedList, state: ListState): Promise<CachedList | undefined> => {
    if (performance.now() < changesPausedUntil) return undefined
    try {
      const changes = await reader.changesSince(state, maxChanges(former.count))
      // A different number means that entries were removed or added.
      if (changes?.count !== former.count) return undefined
      // All commits since then changed other tables or databases.
      if (changes.lines === '') return { list: former, state: changes.state }
      const chunks = await withChanges(former.chunks, changes.lines)
      return chunks && { list: new SerializedList(chunks), state: changes.state }
    } catch (error) {
      if (hasReason(error, 'canceled', 'late', 'unsupported'))
        changesPausedUntil = performance.now() + CHANGES_PAUSE_MS
      // Behind a pooler, the role's statement_timeout may be too short for changes; a read of all entries sets its own. Citus, which may
      // have got the table meanwhile, refuses the statement.
      if (hasReason(error, 'canceled', 'unsupported')) return undefined
      throw error
    }
  }

  const readWhole = async (former: SerializedList | undefined): Promise<CachedList> => {
    const { chunks, state } = await reader.readAll(former?.chunks ?? [])
    return { list: new SerializedList(chunks), state }
  }

  const readLatest = async (): Promise<SerializedList> => {
    const { list: former, state } = cached ?? {}
    const skipsValidator = expectsChanges && former && former.count <= MAX_UNCHECKED_ENTRIES
    expectsChanges = false
    const validator = state && !skipsValidator ? await reader.validator() : state
    const isComparable = state !== undefined && validator?.source === state.source
    if (former && isComparable && !skipsValidator && validator.snapshot === state.snapshot) {
      lists.inc({ result: 'unchanged' })
      return former
    }
    await downloads.waitForMemory(former)
    const changed = former && isComparable ? await readChanged(former, state) : undefined
    const latest = changed ?? (await readWhole(former))
    lists.inc({ result: changed ? 'changed' : 'read' })
    expectsChanges = changed !== undefined && changed.list !== former
    // An equal list stays, to keep its compressed representations.
    cached = former?.digest === latest.list.digest ? { list: former, state: latest.state } : latest
    return cached.list
  }

  /** Reads once more if the connection is lost meanwhile, because every caller that waits would get the error. */
  const read = async (): Promise<SerializedList> => {
    try {
      return await readLatest()
    } catch (err) {
      if (!hasReason(err, 'lost')) throw err
      log.warn({ err: err.cause }, 'a list is read again, because its database connection was lost')
      return readLatest()
    }
  }

  return coalesceReads(read, () => lists.inc({ result: 'joined' }))
}
