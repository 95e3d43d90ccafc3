import { onlyRow } from '../../database/only-row.ts'
import type { Transaction } from '../../database/transaction.ts'
import { COLUMN_NAMES, type Column, columns, valueColumns, valueOrInitial } from '../entry/columns.ts'

/** Whether an import adds and changes entries, or also removes those that are not in the file. */
export type ImportMode = 'upsert' | 'replace'

/** How an import changes the inventory: numbers of entries. */
export type ImportCounts = Readonly<Record<'added' | 'changed' | 'unchanged' | 'removed', number>>

/** SQL expression of a column's new value in an existing entry. It is unchanged if the line has no value for the column. */
const stagedOrCurrent = ({ column, initial }: Column): string =>
  initial === undefined ? `staged.${column}` : `coalesce(staged.${column}, entry.${column})`

const ASSIGNMENTS = valueColumns.map((column) => `${column.column} = ${stagedOrCurrent(column)}`).join(', ')

const DIFFERS = `(${valueColumns.map(({ column }) => `entry.${column}`).join(', ')})
  IS DISTINCT FROM (${valueColumns.map(stagedOrCurrent).join(', ')})`

const NEW_VALUES = columns.map((column) => valueOrInitial(column.column, column)).join(', ')

/**
 * Returns how importing the staged lines, which must be right, would change the inventory now. Removals are computed from the other
 * counts, because Citus does not support an anti-join of a distributed table with a temporary one.
 */
export async function previewImport(transaction: Transaction, mode: ImportMode): Promise<ImportCounts> {
  const rows = await transaction.query<Record<'staged' | 'found' | 'changed' | 'total', string>>(
    `SELECT count(*) AS staged, count(entry.pet_id) AS found,
            count(*) FILTER (WHERE entry.pet_id IS NOT NULL AND ${DIFFERS}) AS changed,
            (SELECT count(*) FROM inventory) AS total
     FROM staged LEFT JOIN inventory AS entry USING (pet_id)`,
  )
  const { staged, found, changed, total } = onlyRow(rows)
  return {
    added: Number(staged) - Number(found),
    changed: Number(changed),
    unchanged: Number(found) - Number(changed),
    removed: mode === 'replace' ? Number(total) - Number(found) : 0,
  }
}

/**
 * Imports the staged lines, which must be right. If a line has no status, an existing entry keeps its status and a new entry becomes
 * `available`. Entries that the file does not change are neither written nor locked. Temporary tables list what to remove and to
 * add, because Citus supports joins of a distributed table with a temporary one only in queries.
 */
export async function mergeStaged(
  transaction: Transaction,
  mode: ImportMode,
  rows: number,
): Promise<ImportCounts> {
  let removed = 0
  if (mode === 'replace') {
    await transaction.query(
      `CREATE TEMPORARY TABLE missing ON COMMIT DROP AS
       SELECT pet_id FROM inventory AS entry LEFT JOIN staged USING (pet_id) WHERE staged.pet_id IS NULL`,
    )
    removed = await transaction.change(
      'DELETE FROM inventory AS entry USING (SELECT pet_id FROM missing) AS missing WHERE missing.pet_id = entry.pet_id',
    )
  }
  // In the order of the index, new entries take less time.
  await transaction.query(
    `CREATE TEMPORARY TABLE added ON COMMIT DROP AS
     SELECT staged.* FROM staged LEFT JOIN inventory AS entry USING (pet_id)
     WHERE entry.pet_id IS NULL ORDER BY pet_id`,
  )
  const changed = await transaction.change(
    `UPDATE inventory AS entry SET ${ASSIGNMENTS} FROM (SELECT * FROM staged) AS staged
     WHERE staged.pet_id = entry.pet_id AND ${DIFFERS}`,
  )
  // Not ON CONFLICT, which takes twice as long for new rows, and locks those that do not change.
  const added = await transaction.change(
    `INSERT INTO inventory (${COLUMN_NAMES}) SELECT ${NEW_VALUES} FROM added`,
  )
  return { added, changed, unchanged: rows - changed - added, removed }
}
