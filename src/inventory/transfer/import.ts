import type { Transaction } from '../../database/admin/transaction.ts'
import { onlyRow } from '../../database/only-row.ts'
import { COLUMN_NAMES, type Column, valueColumns } from '../entry/columns.ts'
import { InvalidInputError } from './lines.ts'

/** Whether an import adds and changes entries, or also removes those that are not in the file. */
export type ImportMode = 'upsert' | 'replace'

/** How an import changes the inventory: numbers of entries. */
export type ImportCounts = Readonly<Record<'added' | 'changed' | 'unchanged' | 'removed', number>>

/** SQL expression of a column's new value. If the line has none, an existing entry keeps its own, and a new one has the default. */
const newValue = ({ column, initial }: Column): string =>
  initial === undefined ? `staged.${column}` : `coalesce(staged.${column}, entry.${column}, ${initial})`

const ASSIGNMENTS = valueColumns.map((column) => `${column.column} = ${newValue(column)}`).join(', ')

/** What the entry of a line must have, and what it has. */
const expected = valueColumns.map(newValue)
const STORED = valueColumns.map(({ column }) => `entry.${column}`).join(', ')

const WRITTEN = valueColumns.map(({ column }) => `written.expected_${column}`).join(', ')

/** Finds the written entries that are not as the file says. */
const DIFFERENT = `SELECT written.pet_id FROM written LEFT JOIN inventory AS entry ON entry.pet_id = written.pet_id
  WHERE (${STORED}) IS DISTINCT FROM (${WRITTEN})`

/** Finds the entries that the file does not have. */
const MISSING = `SELECT entry.pet_id FROM inventory AS entry LEFT JOIN staged ON staged.pet_id = entry.pet_id
  WHERE staged.pet_id IS NULL`

/**
 * Imports the staged lines, which must be right, and compares what is stored with them. If a line has no status, an existing entry
 * keeps its status and a new entry becomes `available`. Entries that the file does not change are neither written nor locked, so
 * that others may change them meanwhile. Temporary tables list what to remove and to write, because Citus supports joins of a
 * distributed table with a temporary one only in queries.
 *
 * @param rows the number of staged lines
 * @throws {InvalidInputError} if the entries are not as the file says, because the operator's own trigger skips or changes rows
 */
export async function mergeStaged(
  transaction: Transaction,
  mode: ImportMode,
  rows: number,
): Promise<ImportCounts> {
  let removed = 0
  if (mode === 'replace') {
    removed = await transaction.change(`CREATE TEMPORARY TABLE missing ON COMMIT DROP AS ${MISSING}`)
    await transaction.query(
      'DELETE FROM inventory AS entry USING (SELECT missing.pet_id FROM missing) AS missing WHERE missing.pet_id = entry.pet_id',
    )
  }
  // In the order of the index, new entries take less time.
  const written = await transaction.change(
    `CREATE TEMPORARY TABLE written ON COMMIT DROP AS
     SELECT staged.*, entry.pet_id IS NULL AS is_new, ${valueColumns.map(({ column }, index) => `${expected[index]} AS expected_${column}`).join(', ')}
     FROM staged LEFT JOIN inventory AS entry ON entry.pet_id = staged.pet_id
     WHERE (${STORED}) IS DISTINCT FROM (${expected.join(', ')}) ORDER BY staged.pet_id`,
  )
  await transaction.query(
    `UPDATE inventory AS entry SET ${ASSIGNMENTS} FROM (SELECT written.* FROM written WHERE NOT written.is_new) AS staged
     WHERE staged.pet_id = entry.pet_id`,
  )
  // Not ON CONFLICT, which takes twice as long for new rows, and locks those that do not change.
  const added = await transaction.change(
    `INSERT INTO inventory (${COLUMN_NAMES}) SELECT written.pet_id, ${WRITTEN} FROM written WHERE written.is_new`,
  )
  // Triggers that wait for the commit may also change rows.
  await transaction.query('SET CONSTRAINTS ALL IMMEDIATE')
  await refuseIfAny(transaction, DIFFERENT, 'would not be stored as they are in the file')
  if (mode === 'replace')
    await refuseIfAny(transaction, MISSING, 'would remain although they are not in the file')
  return { added, changed: written - added, unchanged: rows - written, removed }
}

/** Throws an InvalidInputError if a query finds entries. */
async function refuseIfAny(transaction: Transaction, query: string, what: string): Promise<void> {
  const rows = await transaction.query<{ count: number; first: string }>(
    `SELECT count(*)::float8 AS count, array_to_string((array_agg(wrong.pet_id ORDER BY wrong.pet_id))[1:5], ', ') AS first
     FROM (${query}) AS wrong`,
  )
  const { count, first } = onlyRow(rows)
  if (count > 0)
    throw new InvalidInputError(
      `cannot be imported, because entries ${what} (${count}, such as petId ${first}): a trigger of the table may skip or change rows`,
    )
}
