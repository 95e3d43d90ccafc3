import type { FastifyBaseLogger } from 'fastify'
import { joinReads } from './join-reads.ts'
import type { Readers } from './readers.ts'
import type { InventoryRepository, ListSource, ListValidator } from './repository.ts'
import { type Snapshot, snapshotOfLines } from './snapshot.ts'
import type { InventoryStatistics } from './statistics.ts'

/**
 * Returns the list. A caller gets the entries as of a moment after its call, so with every update that was acknowledged
 * before, by any process. One read serves all callers that wait for it, and where PostgreSQL says that nothing was
 * committed since the last read, no entry is read at all.
 *
 * @throws {DatabaseUnavailableError} out of the returned function, when no answer can be had
 */
export function inventoryList(
  repository: InventoryRepository,
  readers: Readers,
  statistics: InventoryStatistics,
  log: FastifyBaseLogger,
): () => Promise<Snapshot> {
  let kept: { readonly snapshot: Snapshot; readonly validator: ListValidator | undefined } | undefined
  let known: { readonly version: string; readonly comparable: boolean } | undefined

  const logSource = ({ version, validator }: ListSource): void => {
    const comparable = validator !== undefined
    if (known?.version === version && known.comparable === comparable) return
    known = { version, comparable }
    log.info(known, comparable ? 'lists are read anew after a commit' : 'lists are always read anew')
  }

  const { lists } = statistics
  const read = async (): Promise<Snapshot> => {
    if (kept?.validator !== undefined && areEqual(kept.validator, await repository.validator())) {
      lists.unchanged++
      return kept.snapshot
    }
    lists.read++
    await readers.makeRoom(kept?.snapshot)
    // Taken before the entries are read: a commit in between causes an unnecessary read, never a list that is too old.
    let validator: ListValidator | undefined
    const lines = repository.lines((source) => {
      validator = source.validator
      logSource(source)
    })
    const latest = await snapshotOfLines(lines)
    // The same bytes as before have been compressed before.
    const snapshot = kept?.snapshot.etag === latest.etag ? kept.snapshot : latest
    kept = { snapshot, validator }
    return snapshot
  }

  return joinReads(read, () => lists.joined++)
}

function areEqual(one: ListValidator, other: ListValidator): boolean {
  return one.source === other.source && one.snapshot === other.snapshot
}
