import type { StatementRunner } from '../statement.ts'
import { isoTime } from '../time.ts'
import { hasTable } from './server-status.ts'

/** The table in which node-pg-migrate records the applied migrations. */
export const APPLIED_TABLE = 'pgmigrations'

/**
 * A migration that the database, this version or both know. A database may have more than this version: in a rolling deployment, the
 * older version sees the migrations of the newer one.
 */
export interface MigrationRecord {
  readonly name: string
  /** `unknown`: applied by another version. */
  readonly state: 'applied' | 'pending' | 'unknown'
  /** In ISO 8601, and in UTC. Versions before 3.0.0 recorded the time in the time zone of their session. */
  readonly appliedAt: string | null
}

/**
 * Returns the applied migrations and the known ones, by name.
 *
 * @param known the names of all migrations of this version
 */
export async function migrationRecords(
  database: StatementRunner,
  known: readonly string[],
): Promise<MigrationRecord[]> {
  const text = `SELECT name, ${isoTime("run_on AT TIME ZONE 'UTC'")} AS time FROM ${APPLIED_TABLE}`
  const isEmpty = !(await hasTable(database, APPLIED_TABLE))
  const rows = isEmpty ? [] : await database.query<{ name: string; time: string }>(text)
  const applied = new Map(rows.map(({ name, time }) => [name, time]))
  return [...new Set([...known, ...applied.keys()])].sort().map((name) => {
    if (!applied.has(name)) return { name, state: 'pending', appliedAt: null }
    return { name, state: known.includes(name) ? 'applied' : 'unknown', appliedAt: applied.get(name) ?? null }
  })
}

/** Returns the names of the migrations in a state, oldest first. */
export function namesOf(records: readonly MigrationRecord[], state: MigrationRecord['state']): string[] {
  return records.filter((record) => record.state === state).map(({ name }) => name)
}
