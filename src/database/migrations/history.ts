import type { StatementRunner } from '../database.ts'
import { parseTime, timeText } from '../protocol/time.ts'
import { hasTable } from '../server/server-status.ts'
import { APPLIED_TABLE } from './applied.ts'
import { knownMigrations, readMigration } from './files.ts'

/** A migration that the database, this version or both know. */
export interface MigrationRecord {
  readonly name: string
  /**
   * `unknown`: applied by another version. `changed`: the file has changed since it was applied. `out of order`: pending,
   * although a newer migration was applied.
   */
  readonly state: 'applied' | 'pending' | 'unknown' | 'changed' | 'out of order'
  readonly appliedAt: Date | null
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
  const stateOf = async (name: string, row: AppliedRow | undefined): Promise<MigrationRecord['state']> => {
    if (!known.includes(name)) return 'unknown'
    const { checksum } = await readMigration(name)
    if (row === undefined) return name < newest ? 'out of order' : 'pending'
    return row.checksum === null || row.checksum === checksum ? 'applied' : 'changed'
  }
  const records: MigrationRecord[] = []
  for (const name of [...new Set([...known, ...applied.keys()])].sort()) {
    const row = applied.get(name)
    const appliedAt = row === undefined ? null : parseTime(row.appliedAt)
    records.push({ name, state: await stateOf(name, row), appliedAt })
  }
  return records
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
