import type { StatementRunner } from '../database.ts'
import { hasTable } from '../server-status.ts'
import { parseTime, timeText } from '../time.ts'

/** The table in which node-pg-migrate records the applied migrations. */
export const APPLIED_TABLE = 'pgmigrations'

export interface AppliedMigration {
  readonly name: string
  readonly appliedAt: Date
  /** The SHA-256 of the file; null if it was not recorded. */
  readonly checksum: string | null
}

/** Returns all applied migrations, in the order in which they were applied. */
export async function appliedMigrations(database: StatementRunner): Promise<AppliedMigration[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  // The conversion to JSON yields null if the column does not exist yet. The runner stores times without a time zone.
  const rows = await database.query<{ name: string; appliedAt: string; checksum: string | null }>(
    `SELECT name, ${timeText('run_on::timestamptz')} AS "appliedAt", to_jsonb(${APPLIED_TABLE}) ->> 'checksum' AS checksum
     FROM ${APPLIED_TABLE} ORDER BY run_on, id`,
  )
  return rows.map(({ appliedAt, ...row }) => ({ ...row, appliedAt: parseTime(appliedAt) }))
}

/**
 * Returns the known migrations that were not applied. A database may have more than the known ones: in a rolling deployment,
 * the older version sees the migrations of the newer one.
 */
export async function pendingMigrations(
  database: StatementRunner,
  known: readonly string[],
): Promise<string[]> {
  const applied = await appliedMigrations(database)
  return known.filter((name) => !applied.some((migration) => migration.name === name))
}
