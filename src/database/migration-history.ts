import type { InvalidIndex } from './migration-errors.ts'
import { knownMigrations, type MigrationFile, readMigration } from './migration-files.ts'
import { migrationsPid } from './migration-lock.ts'
import type { StatementRunner } from './pool.ts'
import { hasTable } from './server-status.ts'

/** The table in which node-pg-migrate records what it has applied. */
export const APPLIED_TABLE = 'pgmigrations'

/** A migration that the database or this version knows, or both. */
export interface MigrationRecord {
  readonly name: string
  /**
   * `unknown`: applied by a version that is not this one. `changed`: its file is not what was applied.
   * `out of order`: pending, although a newer one was applied. `incomplete`: it failed outside a transaction and left an
   * invalid index. `running`: such a one, while a session runs migrations.
   */
  readonly state: 'applied' | 'pending' | 'unknown' | 'changed' | 'out of order' | 'incomplete' | 'running'
  readonly appliedAt: Date | null
  /** The indexes of an incomplete or running migration that queries cannot use. */
  readonly invalidIndexes: readonly InvalidIndex[]
}

interface AppliedRow {
  readonly name: string
  readonly appliedAt: Date
  readonly checksum: string | null
}

/** Compares the migrations that the database has seen with those of this version, by name. */
export async function migrationHistory(database: StatementRunner): Promise<MigrationRecord[]> {
  // By way of JSON, a column that is not there yet is null. The runner writes times without a zone.
  const rows = (await hasTable(database, APPLIED_TABLE))
    ? await database.query<AppliedRow>(
        `SELECT name, run_on::timestamptz AS "appliedAt", to_jsonb(${APPLIED_TABLE}) ->> 'checksum' AS checksum
         FROM ${APPLIED_TABLE}`,
      )
    : []
  const applied = new Map(rows.map((row) => [row.name, row]))
  const known = await knownMigrations()
  const newest = [...applied.keys()].sort().at(-1) ?? ''
  const isRunning = (await migrationsPid(database)) !== undefined
  const records: MigrationRecord[] = []
  for (const name of [...new Set([...known, ...applied.keys()])].sort()) {
    const row = applied.get(name)
    const file = known.includes(name) ? await readMigration(name) : undefined
    const invalidIndexes = file === undefined ? [] : await invalidIndexesOf(database, file)
    const state = (): MigrationRecord['state'] => {
      if (file === undefined) return 'unknown'
      if (row === undefined && name < newest) return 'out of order'
      if (row !== undefined && row.checksum !== null && row.checksum !== file.checksum) return 'changed'
      if (invalidIndexes.length > 0) return isRunning ? 'running' : 'incomplete'
      return row === undefined ? 'pending' : 'applied'
    }
    records.push({ name, state: state(), appliedAt: row?.appliedAt ?? null, invalidIndexes })
  }
  return records
}

/** The invalid indexes that a migration names in a part that runs outside a transaction; no other part leaves one. */
export async function invalidIndexesOf(
  database: StatementRunner,
  { up, down }: MigrationFile,
): Promise<InvalidIndex[]> {
  const statements = [up, down].flatMap((part) => (part.isTransactional ? [] : part.statements))
  if (statements.length === 0) return []
  return database.query<InvalidIndex & { name: string; table: string }>(
    `SELECT indexrelid::regclass::text AS name, indrelid::regclass::text AS table
     FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
     WHERE NOT indisvalid AND relname = ANY ($1) ORDER BY name`,
    [[...new Set(statements.join(' ').match(/\w+/g))]],
  )
}

/** Records the checksums of applied migrations that have none yet, where the table has the column for them. */
export async function recordChecksums(database: StatementRunner): Promise<void> {
  const rows = await database.query(
    "SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'checksum' AND NOT attisdropped",
    [APPLIED_TABLE],
  )
  if (rows.length === 0) return
  for (const name of await knownMigrations()) {
    await database.query(`UPDATE ${APPLIED_TABLE} SET checksum = $2 WHERE name = $1 AND checksum IS NULL`, [
      name,
      (await readMigration(name)).checksum,
    ])
  }
}

/**
 * Those of the known migrations that the database has not seen. A database that has seen more is newer, which is
 * how a rolling deployment looks from the older version's side.
 */
export async function pendingMigrations(
  database: StatementRunner,
  known: readonly string[],
): Promise<string[]> {
  const applied = new Set(await appliedMigrations(database))
  return known.filter((name) => !applied.has(name))
}

/** The names of all migrations that the database has seen, in their order. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(`SELECT name FROM ${APPLIED_TABLE} ORDER BY name`)
  return rows.map((row) => row.name)
}

/** The names of the migrations that were applied last, the newest first, as node-pg-migrate rolls them back. */
export async function newestApplied(database: StatementRunner, count: number): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(
    `SELECT name FROM ${APPLIED_TABLE} ORDER BY run_on DESC, id DESC LIMIT $1`,
    [count],
  )
  return rows.map(({ name }) => name)
}
