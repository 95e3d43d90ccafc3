import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { isoTime } from './iso-time.ts'
import { OperatorError } from './operator-error.ts'
import type { StatementRunner } from './statement.ts'

/** Contains an SQL file for each migration. */
export const MIGRATIONS_FOLDER = fileURLToPath(import.meta.resolve('#package/migrations'))

/** The names of all migrations of this version, oldest first. */
export const knownMigrations: readonly string[] = readdirSync(MIGRATIONS_FOLDER)
  .flatMap((file) => /^(\d+_.*)\.sql$/.exec(file)?.[1] ?? [])
  .sort()

/** The table in which node-pg-migrate records the applied migrations. */
export const APPLIED_TABLE = 'pgmigrations'

/** A migration that the database, this version or both know. In a rolling deployment, the older version sees those of the newer one. */
export interface MigrationRecord {
  readonly name: string
  /** `unknown`: applied by another version. */
  readonly state: 'applied' | 'pending' | 'unknown'
  /** In ISO 8601, in UTC. */
  readonly appliedAt: string | null
}

/** Whether there is such a table in a schema that the role may use. */
export async function hasTable(database: StatementRunner, name: string): Promise<boolean> {
  return (await database.query('SELECT WHERE to_regclass($1) IS NOT NULL', [name])).length > 0
}

/** Returns the applied migrations and the known ones, by name. */
export async function migrationRecords(database: StatementRunner): Promise<MigrationRecord[]> {
  const text = `SELECT name, ${isoTime("run_on AT TIME ZONE 'UTC'")} AS time FROM ${APPLIED_TABLE}`
  const isEmpty = !(await hasTable(database, APPLIED_TABLE))
  const rows = isEmpty ? [] : await database.query<{ name: string; time: string }>(text)
  const applied = new Map(rows.map(({ name, time }) => [name, time]))
  return [...new Set([...knownMigrations, ...applied.keys()])].sort().map((name) => {
    if (!applied.has(name)) return { name, state: 'pending', appliedAt: null }
    const state = knownMigrations.includes(name) ? 'applied' : 'unknown'
    return { name, state, appliedAt: applied.get(name) ?? null }
  })
}

/** Returns the names of the migrations in a state, oldest first. */
export function listNames(records: readonly MigrationRecord[], state: MigrationRecord['state']): string[] {
  return records.filter((record) => record.state === state).map(({ name }) => name)
}

/** Returns the names of the applied migrations, oldest first. Throws an OperatorError if the table is another program's. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  const applied = (await migrationRecords(database)).filter(({ state }) => state !== 'pending')
  const [first] = applied
  // A newer version has all migrations of this one.
  if (first?.state === 'unknown')
    throw new OperatorError(
      `The table pgmigrations belongs to another program: it lists the migration ${first.name}; nothing was changed. Give the inventory a database of its own, or a schema that is alone in the search_path of its roles.`,
    )
  return applied.map(({ name }) => name)
}
