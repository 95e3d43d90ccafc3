import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { StatementRunner } from './pool.ts'

/** A migration that the database or this version knows, or both. */
export interface MigrationRecord {
  readonly name: string
  /**
   * `unknown`: applied by a version that is not this one. `changed`: its file is not what was applied.
   * `out of order`: pending, although a newer one was applied.
   */
  readonly state: 'applied' | 'pending' | 'unknown' | 'changed' | 'out of order'
  readonly appliedAt: Date | null
}

interface AppliedRow {
  readonly name: string
  readonly appliedAt: Date
  readonly checksum: string | null
}

/** Compares what the database has seen with the migrations in a folder, by name; `known` are those of the folder. */
export async function migrationRecords(
  database: StatementRunner,
  table: string,
  folder: string,
  known: readonly string[],
): Promise<MigrationRecord[]> {
  const [found] = await database.query<{ exists: boolean }>('SELECT to_regclass($1) IS NOT NULL AS exists', [
    table,
  ])
  // By way of JSON, a column that is not there yet is null. The runner writes times without a zone.
  const rows = found?.exists
    ? await database.query<AppliedRow>(
        `SELECT name, run_on::timestamptz AS "appliedAt", to_jsonb(${table}) ->> 'checksum' AS checksum FROM ${table}`,
      )
    : []
  const applied = new Map(rows.map((row) => [row.name, row]))
  const newest = [...applied.keys()].sort().at(-1) ?? ''
  const names = [...new Set([...known, ...applied.keys()])].sort()
  return Promise.all(
    names.map(async (name) => {
      const row = applied.get(name)
      return { name, state: await stateOf(name, row), appliedAt: row?.appliedAt ?? null }
    }),
  )

  async function stateOf(name: string, row: AppliedRow | undefined): Promise<MigrationRecord['state']> {
    if (row === undefined) return name < newest ? 'out of order' : 'pending'
    if (!known.includes(name)) return 'unknown'
    return row.checksum === null || row.checksum === (await checksumOf(folder, name)) ? 'applied' : 'changed'
  }
}

/** Notes what the applied migrations say, where that is not noted yet and the table has the column for it. */
export async function recordChecksums(
  database: StatementRunner,
  table: string,
  folder: string,
  known: readonly string[],
): Promise<void> {
  const rows = await database.query(
    "SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'checksum' AND NOT attisdropped",
    [table],
  )
  if (rows.length === 0) return
  for (const name of known) {
    await database.query(`UPDATE ${table} SET checksum = $2 WHERE name = $1 AND checksum IS NULL`, [
      name,
      await checksumOf(folder, name),
    ])
  }
}

/** The SHA-256 of a migration, the same for both kinds of line ends. */
async function checksumOf(folder: string, name: string): Promise<string> {
  const text = await readFile(path.join(folder, `${name}.sql`), 'utf8')
  return createHash('sha256').update(text.replaceAll('\r\n', '\n')).digest('hex')
}
