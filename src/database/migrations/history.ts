import type { StatementRunner } from '../database.ts'
import { parseTime, timeText } from '../protocol/time.ts'
import { hasTable } from '../server/server-status.ts'
import { APPLIED_TABLE } from './applied.ts'
import type { InvalidIndex } from './errors.ts'
import { knownMigrations, type MigrationFile, readMigration } from './files.ts'
import { migrationsPid } from './lock.ts'

/** A migration that the database, this version or both know. */
export interface MigrationRecord {
  readonly name: string
  /**
   * `unknown`: applied by another version. `changed`: the file has changed since it was applied. `out of order`: pending,
   * although a newer migration was applied. `incomplete`: failed outside a transaction and left an invalid index. `running`:
   * the same while a session runs migrations, so that the index may still become valid.
   */
  readonly state: 'applied' | 'pending' | 'unknown' | 'changed' | 'out of order' | 'incomplete' | 'running'
  readonly appliedAt: Date | null
  /** The invalid indexes of an incomplete or running migration. */
  readonly invalidIndexes: readonly InvalidIndex[]
}

interface AppliedRow {
  readonly name: string
  readonly appliedAt: string
  readonly checksum: string | null
}

/** Compares the applied migrations with those of this version, and returns all of them sorted by name. */
export async function migrationHistory(database: StatementRunner): Promise<MigrationRecord[]> {
  // The conversion to JSON yields null if the column does not exist yet. The runner stores times without a time zone.
  const rows = (await hasTable(database, APPLIED_TABLE))
    ? await database.query<AppliedRow>(
        `SELECT name, ${timeText('run_on::timestamptz')} AS "appliedAt", to_jsonb(${APPLIED_TABLE}) ->> 'checksum' AS checksum
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
    records.push({
      name,
      state: state(),
      appliedAt: row === undefined ? null : parseTime(row.appliedAt),
      invalidIndexes,
    })
  }
  return records
}

/** Returns the invalid indexes named in parts of a migration outside a transaction. Other parts cannot leave invalid indexes. */
export async function invalidIndexesOf(
  database: StatementRunner,
  { up, down }: MigrationFile,
): Promise<InvalidIndex[]> {
  const statements = [up, down].flatMap((part) => (part.isTransactional ? [] : part.statements))
  if (statements.length === 0) return []
  return database.query<InvalidIndex>(
    `SELECT indexrelid::regclass::text AS name, indrelid::regclass::text AS table
     FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
     WHERE NOT indisvalid AND relname = ANY ($1) ORDER BY name`,
    [[...new Set(statements.join(' ').match(/\w+/g))]],
  )
}

/** Records the checksums of applied migrations that have none yet. Does nothing if the table has no column for them yet. */
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
