import type { FastifyBaseLogger } from 'fastify'
import { joinReads } from './join-reads.ts'
import type { Readers } from './readers.ts'
import type { InventoryRepository } from './repository.ts'
import { type Snapshot, snapshotOfLines } from './snapshot.ts'
import type { InventoryStatistics } from './statistics.ts'

/**
 * The list for everybody who asks. A caller gets the entries as they were at some moment after it asked, so with every
 * update that was acknowledged before, by any process. One read serves all who wait for it, and where PostgreSQL says
 * that nothing was committed since the last one, no entry is read at all.
 *
 * @throws {DatabaseUnavailableError} out of the returned function, when no answer can be had
 */
export function inventoryList(
  repository: InventoryRepository,
  readers: Readers,
  statistics: InventoryStatistics,
  log: FastifyBaseLogger,
): () => Promise<Snapshot> {
  let kept: { readonly snapshot: Snapshot; readonly position: string | undefined } | undefined
  let server: { readonly startedAt: string; readonly comparable: boolean } | undefined

  /** What two reads have in common when nothing was committed between them; undefined where nothing tells. */
  const currentPosition = async (): Promise<string | undefined> => {
    if (server?.comparable === false) return undefined
    const { startedAt, backend, generation, transactions } = await repository.position()
    if (server?.startedAt !== startedAt) {
      const { version, isPlain } = await repository.server()
      server = { startedAt, comparable: isPlain }
      log.info(
        { version, comparable: isPlain },
        isPlain ? 'lists are read anew after a commit' : 'lists are always read anew',
      )
    }
    return server.comparable ? `${startedAt} ${backend} ${generation} ${transactions}` : undefined
  }

  const { lists } = statistics
  const read = async (): Promise<Snapshot> => {
    // Taken before the entries are read: a commit in between makes the next read one too many, never one too few.
    const position = await currentPosition()
    if (kept?.position !== undefined && kept.position === position) {
      lists.unchanged++
      return kept.snapshot
    }
    lists.read++
    await readers.makeRoom(kept?.snapshot)
    const latest = await snapshotOfLines(repository.lines())
    // The same bytes as before have been compressed before.
    const snapshot = kept?.snapshot.etag === latest.etag ? kept.snapshot : latest
    kept = { snapshot, position }
    return snapshot
  }

  return joinReads(read, () => lists.joined++)
}
