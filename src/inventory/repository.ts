import type { Database } from '../database/pool.ts'
import { COLUMN_NAMES, columns, type NewItem, valueOrInitial } from './columns.ts'
import { type PrimaryListReads, primaryListReads } from './list/reads.ts'
import { StandbyReads, type StandbyReadsOptions } from './list/standby-reads.ts'
import type { PetStatus } from './schemas.ts'
import { type UpdateRepository, updateRepository } from './updates/statements.ts'

/**
 * All access to the table `inventory`: the statements of lists are in `list`, those of updates in `updates`, and what else
 * there is stands here. Every method raises DatabaseUnavailableError when no answer can be had.
 */
export interface InventoryRepository extends PrimaryListReads, UpdateRepository {
  /** Absent where lists are read from the primary alone. */
  readonly standby?: StandbyReads | undefined

  /** How many entries there are with each status. */
  countByStatus(): Promise<Record<PetStatus, number>>

  /** Adds entries to a table that has none; a table with entries stays as it is. */
  addIfEmpty(items: readonly NewItem[]): Promise<void>
}

/**
 * `lists` serves the reads of all entries, `database` everything else; neither ever waits for the other. Where there is a
 * `standby`, it serves the reads of all entries that it can.
 */
export function inventoryRepository(
  database: Database,
  lists: Database,
  standby?: Omit<StandbyReadsOptions, 'primary'>,
): InventoryRepository {
  // Behind a pooler a connection is verified only as it opens, and any statement may be on another server.
  const reads = primaryListReads(lists, lists.isPooled ? undefined : () => standby?.server.history)
  return {
    ...reads,
    ...updateRepository(database),
    standby: standby && new StandbyReads({ primary: reads, ...standby }),

    async countByStatus() {
      const rows = await database.query<{ status: PetStatus; count: bigint }>(
        'SELECT status, count(*) AS count FROM inventory GROUP BY status',
      )
      const counts: Record<PetStatus, number> = { available: 0, pending: 0, sold: 0 }
      for (const { status, count } of rows) counts[status] = Number(count)
      return counts
    },

    async addIfEmpty(items) {
      await database.query(
        `INSERT INTO inventory (${COLUMN_NAMES})
         SELECT ${columns.map((column) => valueOrInitial(column.column, column)).join(', ')}
         FROM unnest(${columns.map(({ type }, index) => `$${index + 1}::${type}[]`).join(', ')}) AS new (${COLUMN_NAMES})
         WHERE NOT EXISTS (SELECT FROM inventory)`,
        columns.map(({ field }) => items.map((item) => item[field] ?? null)),
      )
    },
  }
}
