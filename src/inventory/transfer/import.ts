import type { Readable } from 'node:stream'
import { onlyRow } from '../../database/only-row.ts'
import type { Transaction } from '../../database/transaction.ts'
import { COLUMN_NAMES, type Column, columns, valueColumns, valueOrInitial } from '../entry/columns.ts'

/** Whether an import only adds new entries, adds and updates entries, or replaces the whole inventory. */
export type ImportMode = 'insert' | 'upsert' | 'replace'

/** How an import changes the inventory: numbers of entries. */
export interface ImportCounts {
  readonly added: number
  readonly changed: number
  readonly unchanged: number
  readonly removed: number
}

/** SQL expression of a column's new value in an existing entry. It is unchanged if the line has no value for the column. */
const stagedOrCurrent = ({ column, initial }: Column): string =>
  initial === undefined ? `staged.${column}` : `coalesce(staged.${column}, entry.${column})`

const ASSIGNMENTS = valueColumns.map((column) => `${column.column} = ${stagedOrCurrent(column)}`).join(', ')

/** SQL expressions of the values of new entries from a table. */
const newValues = (table: string): string =>
  columns.map((column) => valueOrInitial(`${table}.${column.column}`, column)).join(', ')

const DIFFERS = `(${valueColumns.map(({ column }) => `entry.${column}`).join(', ')})
  IS DISTINCT FROM (${valueColumns.map(stagedOrCurrent).join(', ')})`

/** The entries whose petId is in no line. */
const MISSING_ENTRIES = 'inventory AS entry LEFT JOIN staged USING (pet_id) WHERE staged.pet_id IS NULL'

/**
 * Returns how importing the staged entries would change the inventory now. They must have no conflicts. Removals are computed
 * from the other counts, because Citus does not support an anti-join of a distributed table with a temporary one.
 */
export async function previewImport(transaction: Transaction, mode: ImportMode): Promise<ImportCounts> {
  const rows = await transaction.query<Record<'added' | 'changed' | 'unchanged' | 'total', string>>(
    `SELECT count(*) FILTER (WHERE entry.pet_id IS NULL) AS added,
            count(*) FILTER (WHERE entry.pet_id IS NOT NULL AND ${DIFFERS}) AS changed,
            count(*) FILTER (WHERE entry.pet_id IS NOT NULL AND NOT ${DIFFERS}) AS unchanged,
            (SELECT count(*) FROM inventory) AS total
     FROM staged LEFT JOIN inventory AS entry USING (pet_id)`,
  )
  const counts = onlyRow(rows)
  const changed = Number(counts.changed)
  const unchanged = Number(counts.unchanged)
  return {
    added: Number(counts.added),
    changed,
    unchanged,
    removed: mode === 'replace' ? Number(counts.total) - changed - unchanged : 0,
  }
}

/**
 * Returns the entries that importing the staged entries would change, as CSV in ascending order of petId. The column `change` is
 * `add`, `change` or `remove`; the others have the current and the new values, which are empty if there is no entry.
 */
export function listChanges(transaction: Transaction, mode: ImportMode): Readable {
  const changes = valueColumns.map((column) => {
    const { field, column: name } = column
    const newName = `new${field.charAt(0).toUpperCase()}${field.slice(1)}`
    return `entry.${name} AS "${field}", ${valueOrInitial(stagedOrCurrent(column), column)} AS "${newName}"`
  })
  const removals = `
    UNION ALL SELECT pet_id, 'remove', ${valueColumns.map(({ column }) => `entry.${column}, NULL`).join(', ')}
    FROM ${MISSING_ENTRIES}`
  return transaction.copyOut(
    `COPY (
       SELECT pet_id AS "petId", CASE WHEN entry.pet_id IS NULL THEN 'add' ELSE 'change' END AS change,
              ${changes.join(', ')}
       FROM staged LEFT JOIN inventory AS entry USING (pet_id) WHERE entry.pet_id IS NULL OR ${DIFFERS}
       ${mode === 'replace' ? removals : ''}
       ORDER BY 1
     ) TO STDOUT (FORMAT csv, HEADER)`,
  )
}

/**
 * Imports the staged entries, which must have no conflicts. If a line has no status, an existing entry keeps its status and a new
 * entry becomes `available`. Entries that the file does not change are neither written nor locked. Temporary tables list what to
 * remove and to add, because Citus supports joins of a distributed table with a temporary one only in queries.
 *
 * @param onProgress called after each statement with the fraction of rows that are written, from 0 to 1
 */
export async function mergeStaged(
  transaction: Transaction,
  mode: ImportMode,
  onProgress: (fraction: number) => void,
): Promise<ImportCounts> {
  let removed = 0
  if (mode === 'replace') {
    await transaction.query(
      `CREATE TEMPORARY TABLE missing ON COMMIT DROP AS SELECT pet_id FROM ${MISSING_ENTRIES}`,
    )
    removed = await transaction.change(
      'DELETE FROM inventory AS entry USING (SELECT pet_id FROM missing) AS missing WHERE missing.pet_id = entry.pet_id',
    )
  }
  // In the order of the index, new entries take less time.
  const added = await transaction.change(
    `CREATE TEMPORARY TABLE added ON COMMIT DROP AS
     SELECT staged.* FROM staged LEFT JOIN inventory AS entry USING (pet_id)
     WHERE entry.pet_id IS NULL ORDER BY pet_id`,
  )
  const changed = await changeInParts(
    transaction,
    'staged',
    (part) =>
      `UPDATE inventory AS entry SET ${ASSIGNMENTS} FROM ${part} WHERE staged.pet_id = entry.pet_id AND ${DIFFERS}`,
    (fraction) => onProgress(fraction / 2),
  )
  await changeInParts(
    transaction,
    'added',
    (part) => `INSERT INTO inventory (${COLUMN_NAMES}) SELECT ${newValues('added')} FROM ${part}`,
    (fraction) => onProgress((1 + fraction) / 2),
  )
  const staged = await transaction.query<{ count: string }>('SELECT count(*) AS count FROM staged')
  return { added, changed, unchanged: Number(onlyRow(staged).count) - changed - added, removed }
}

/**
 * The number of statements for the rows of a large import, so that it can report progress, and the minimum number of blocks for
 * each: 1,024 blocks are 8 MB, about 140,000 rows.
 */
const MAX_PARTS = 20
const MIN_PART_BLOCKS = 1024

/** Runs a statement for each part of a temporary table, and returns the number of rows that they changed. */
async function changeInParts(
  transaction: Transaction,
  table: 'staged' | 'added',
  statementFor: (part: string) => string,
  onProgress: (fraction: number) => void,
): Promise<number> {
  const rows = await transaction.query<{ blocks: string }>(
    `SELECT pg_relation_size('${table}') / current_setting('block_size')::bigint AS blocks`,
  )
  const blocks = Number(onlyRow(rows).blocks)
  const step = Math.max(MIN_PART_BLOCKS, Math.ceil(blocks / MAX_PARTS))
  let changed = 0
  for (let block = 0; block < blocks; block += step) {
    // PostgreSQL finds rows by block number without an index and without reading the other blocks.
    const part = `(SELECT * FROM ${table} WHERE ctid >= '(${block},0)' AND ctid < '(${block + step},0)') AS ${table}`
    changed += await transaction.change(statementFor(part))
    onProgress(Math.min(1, (block + step) / blocks))
  }
  return changed
}
