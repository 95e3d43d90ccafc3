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

/** Returns the names of all applied migrations, sorted by name. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(`SELECT name FROM ${APPLIED_TABLE} ORDER BY name`)
  return rows.map((row) => row.name)
}

/** Returns the names of the migrations that were applied last, newest first: the order in which they are rolled back. */
export async function newestApplied(database: StatementRunner, count: number): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(
    `SELECT name FROM ${APPLIED_TABLE} ORDER BY run_on DESC, id DESC LIMIT $1`,
    [count],
  )
  return rows.map(({ name }) => name)
}
