import type { StatementRunner } from '../database.ts'
import { hasTable } from '../server/server-status.ts'

/** The table in which node-pg-migrate records the applied migrations. */
export const APPLIED_TABLE = 'pgmigrations'

/**
 * Returns the known migrations that were not applied. A database may have more than the known ones: in a rolling deployment,
 * the older version sees the migrations of the newer one.
 */
export async function pendingMigrations(
  database: StatementRunner,
  known: readonly string[],
): Promise<string[]> {
  const applied = new Set(await appliedMigrations(database))
  return known.filter((name) => !applied.has(name))
}

/** Returns the names of all applied migrations, in the order in which they were applied. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(`SELECT name FROM ${APPLIED_TABLE} ORDER BY run_on, id`)
  return rows.map((row) => row.name)
}
