import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { StatementRunner } from './database.ts'
import { hasTable } from './server-status.ts'
import { parseTime, timeText } from './time.ts'

/** Contains one SQL file per migration, each with an up and a down part. The relative path is valid in `src` and `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url))

/** The table in which node-pg-migrate records the applied migrations. */
export const APPLIED_TABLE = 'pgmigrations'

/** A migration that the database, this version or both know. */
export interface MigrationRecord {
  readonly name: string
  /** `unknown`: applied by another version. */
  readonly state: 'applied' | 'pending' | 'unknown'
  /** In UTC, if version 3.0.0 or newer applied it. Older versions recorded the time in the time zone of their session. */
  readonly appliedAt: Date | null
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
 * Returns all applied migrations by name. Their times cannot order them: the time zone of a database may have changed, and the
 * end of daylight saving time repeats an hour.
 */
export async function appliedMigrations(
  database: StatementRunner,
): Promise<{ readonly name: string; readonly appliedAt: Date }[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string; appliedAt: string }>(
    `SELECT name, ${timeText("run_on AT TIME ZONE 'UTC'")} AS "appliedAt" FROM ${APPLIED_TABLE} ORDER BY name COLLATE "C"`,
  )
  return rows.map(({ name, appliedAt }) => ({ name, appliedAt: parseTime(appliedAt) }))
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

/** Compares the applied migrations with those of this version, and returns all of them sorted by name. */
export async function migrationRecords(database: StatementRunner): Promise<MigrationRecord[]> {
  const applied = await appliedMigrations(database)
  const known = await knownMigrations()
  const records: MigrationRecord[] = [
    ...applied.map((row) => ({ ...row, state: known.includes(row.name) ? 'applied' : 'unknown' }) as const),
    ...(await pendingMigrations(database, known)).map(
      (name) => ({ name, state: 'pending', appliedAt: null }) as const,
    ),
  ]
  return records.sort((a, b) => (a.name < b.name ? -1 : 1))
}

/**
 * Returns the migrations that `migrate` would roll back now, newest first.
 *
 * @throws {MigrationError} if one of them was applied by another version
 */
export async function namesToRollBack(database: StatementRunner, count: number): Promise<string[]> {
  const names = (await appliedMigrations(database))
    .map(({ name }) => name)
    .slice(-count)
    .reverse()
  const known = await knownMigrations()
  const unknown = names.find((name) => !known.includes(name))
  if (unknown === undefined) return names
  throw new MigrationError(
    `This version does not know the migration ${unknown}. Roll it back with the version that introduced it.`,
  )
}

/** Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. */
export async function createMigration(name: string, folder: string): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  return Migration.create(name, folder, {
    filenameFormat: 'utc',
    templateFileName: path.join(MIGRATIONS_FOLDER, '.template.sql'),
  })
}
