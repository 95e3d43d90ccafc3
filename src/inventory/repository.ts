import type { Database } from '../database/database.ts'
import { type ListReader, listReader } from './list/reads/reader.ts'
import { listTexts } from './list/reads/sql.ts'
import { type UpdateRepository, updateRepository, updateTexts } from './updates/repository.ts'

/** Reads and updates the table `inventory`. Every method rejects with a DatabaseUnavailableError if the database cannot serve. */
export type InventoryRepository = ListReader & UpdateRepository

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
  return { ...listReader(lists), ...updateRepository(database, probe) }
}
