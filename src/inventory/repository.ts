import type { Database } from '../database/pool.ts'
import { MonitoredStandby, type MonitoredStandbyOptions } from './list/monitored-standby.ts'
import { type PrimaryListReads, primaryListReads } from './list/primary-reads.ts'
import type { PetStatus } from './schemas.ts'
import { type UpdateRepository, updateRepository } from './updates/statements.ts'

/**
 * Reads and writes the table `inventory`. The statements of lists are in `list`, those of updates in `updates`, and the others
 * here. Every method rejects with a DatabaseUnavailableError if the database cannot serve.
 */
export interface InventoryRepository extends PrimaryListReads, UpdateRepository {
  /** Absent if lists are read only from the primary. */
  readonly standby?: MonitoredStandby | undefined

  /** Returns the number of entries with each status. */
  countByStatus(): Promise<Record<PetStatus, number>>
}

/**
 * Creates the repository. Lists use the pool `lists`, and everything else uses `database`, so that neither waits for the other.
 * With a `standby`, lists are read from it whenever it can serve them.
 */
export function inventoryRepository(
  database: Database,
  lists: Database,
  standby?: Omit<MonitoredStandbyOptions, 'primary'>,
): InventoryRepository {
  // Behind a pooler, a connection is verified only when it is opened, but later statements may run on another server.
  const reads = primaryListReads(lists, lists.isPooled ? undefined : () => standby?.server.history)
  return {
    ...reads,
    ...updateRepository(database),
    standby: standby && new MonitoredStandby({ primary: reads, ...standby }),

    async countByStatus() {
      const rows = await database.query<{ status: PetStatus; count: bigint }>(
        'SELECT status, count(*) AS count FROM inventory GROUP BY status',
      )
      const counts: Record<PetStatus, number> = { available: 0, pending: 0, sold: 0 }
      for (const { status, count } of rows) counts[status] = Number(count)
      return counts
    },
  }
}
