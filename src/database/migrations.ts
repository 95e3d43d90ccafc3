import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { StatementRunner } from './database.ts'
import { hasTable } from './server-status.ts'
import { isoTime } from './time.ts'

/** Contains one SQL file per migration, each with an up and a down part. The relative path is valid in `src` and `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url))

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

/** Migrations or grants cannot run, or have failed. The message says why, what was changed, and what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError'
}

/** Returns the names of all migrations of this version, oldest first. */
export async function knownMigrations(): Promise<string[]> {
  const files = await readdir(MIGRATIONS_FOLDER)
  return files
    .filter((file) => /^\d+_.*\.sql$/.test(file))
    .map((file) => file.slice(0, -'.sql'.length))
    .sort()
}

/**
 * Returns the applied migrations and the known ones, by name. Their times cannot order them: the time zone of a database may have
 * changed, and the end of daylight saving time repeats an hour.
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
    const appliedAt = applied.get(name) ?? null
    if (appliedAt === null) return { name, state: 'pending', appliedAt }
    return { name, state: known.includes(name) ? 'applied' : 'unknown', appliedAt }
  })
}

/** Returns the names of the migrations in a state, oldest first. */
export function namesOf(records: readonly MigrationRecord[], state: MigrationRecord['state']): string[] {
  return records.filter((record) => record.state === state).map(({ name }) => name)
}

/** Returns the migrations that `migrate` would roll back now, newest first. It refuses those that another version applied. */
export async function namesToRollBack(database: StatementRunner, count: number): Promise<string[]> {
  const records = await migrationRecords(database, await knownMigrations())
  const applied = records.filter(({ state }) => state !== 'pending').map(({ name }) => name)
  return applied.slice(-count).reverse()
}

/** Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. */
export async function createMigration(name: string, folder: string): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  return Migration.create(name, folder, {
    filenameFormat: 'utc',
    templateFileName: path.join(MIGRATIONS_FOLDER, '.template.sql'),
  })
}
