import type { StatementRunner } from '../database.ts'
import { APPLIED_TABLE, type AppliedMigration, appliedMigrations } from './applied.ts'
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

/** Compares the applied migrations with those of this version, and returns all of them sorted by name. */
export async function migrationHistory(database: StatementRunner): Promise<MigrationRecord[]> {
  const applied = new Map((await appliedMigrations(database)).map((row) => [row.name, row]))
  const known = await knownMigrations()
  const newest = [...applied.keys()].sort().at(-1) ?? ''
  const stateOf = async (name: string, row?: AppliedMigration): Promise<MigrationRecord['state']> => {
    if (!known.includes(name)) return 'unknown'
    const { checksum } = await readMigration(name)
    if (row === undefined) return name < newest ? 'out of order' : 'pending'
    return row.checksum === null || row.checksum === checksum ? 'applied' : 'changed'
  }
  const records: MigrationRecord[] = []
  for (const name of [...new Set([...known, ...applied.keys()])].sort()) {
    const row = applied.get(name)
    records.push({ name, state: await stateOf(name, row), appliedAt: row?.appliedAt ?? null })
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
