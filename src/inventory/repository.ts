import type { Database } from '../database/database.ts'
import type { PetStatus } from './entry/schemas.ts'
import { type ListReader, listReader } from './list/reads/reader.ts'
import { listTexts } from './list/reads/sql.ts'
import { type UpdateRepository, updateRepository, updateTexts } from './updates/repository.ts'

/**
 * Reads and writes the table `inventory`. The statements of lists are in `list`, those of updates in `updates`, and the others
 * here. Every method rejects with a DatabaseUnavailableError if the database cannot serve.
 */
export interface InventoryRepository extends ListReader, UpdateRepository {
  /** Returns the number of entries with each status. */
  countByStatus(): Promise<Record<PetStatus, number>>
}

/**
 * Returns the texts of the statements that lists and updates need. The one that finds changes is not among them: without it, each
 * list is read in full.
 */
export function inventoryStatements({ backend }: Database): readonly string[] {
  return [...listTexts(backend), ...updateTexts]
}

/**
 * Creates the repository. Lists use the pool `lists`, and updates use `database`, so that neither waits for the other. The pool
 * `probe` is for statements that no request is waiting for.
 */
export function inventoryRepository(
  database: Database,
  lists: Database,
  probe = database,
): InventoryRepository {
  return {
    ...listReader(lists),
    ...updateRepository(database, probe),

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
