import type { Readable, Writable } from 'node:stream'
import { mayBeUnknown } from '../../database/errors/sqlstate.ts'
import type { Transaction } from '../../database/operator/transaction.ts'
import { toCopyText } from '../../database/protocol/copy-text.ts'
import { onlyRow } from '../../database/protocol/only-row.ts'
import { COLUMN_NAMES, type Column, columns, valueColumns, valueOrInitial } from '../columns.ts'
import type { ImportEntry } from './import-line.ts'

/** Whether an import only adds new entries, adds and updates entries, or replaces the whole inventory. */
export type ImportMode = 'insert' | 'upsert' | 'replace'

/** How an import changes the inventory: numbers of entries. */
export interface ImportCounts {
  readonly added: number
  readonly changed: number
  readonly unchanged: number
  readonly removed: number
}

/** A valid line that conflicts with another line or with the table. */
export interface Conflict {
  readonly line: number
  readonly error: string
}

/** Key of the advisory lock for imports. Without it, two imports could deadlock, because they lock rows in different orders. */
const IMPORT_LOCK = 7_301_482_266

/** Returns an entry in the format that `stageEntries` expects: COPY's text format (PostgreSQL manual, COPY, Text Format). */
export function stagedText(line: number, entry: ImportEntry): string {
  let text = `${line}`
  for (const value of entry) text += `\t${toCopyText(value)}`
  return `${text}\n`
}

/** Creates a temporary table for the entries of an import, and returns a stream that writes to it. */
export async function stageEntries(transaction: Transaction): Promise<Writable> {
  await transaction.query(
    `CREATE TEMPORARY TABLE staged (
       line bigint, ${columns.map(({ column, type }) => `${column} ${type}`).join(', ')}
     ) ON COMMIT DROP`,
  )
  return transaction.copyIn('COPY staged FROM STDIN')
}

/**
 * Finds the lines that repeat a petId and, in mode `insert`, the lines whose petId already has an entry. Call it when all entries
 * are staged. From then on, no other import runs until the transaction ends.
 *
 * @returns the first conflicts by line, at most `limit`, and the number of all conflicts
 */
export async function findConflicts(
  transaction: Transaction,
  mode: ImportMode,
  limit: number,
): Promise<{ first: Conflict[]; count: number }> {
  await transaction.query("SET LOCAL work_mem = '64MB'")
  await transaction.takeAdvisoryLock(IMPORT_LOCK)
  await transaction.query('ANALYZE staged (pet_id)')
  const conflicts = [
    `SELECT line, 'petId ' || pet_id || ' is in line ' || earlier || ' already' AS error
     FROM (SELECT line, pet_id, lag(line) OVER (PARTITION BY pet_id ORDER BY line) AS earlier FROM staged) AS repeated
     WHERE earlier IS NOT NULL`,
    `SELECT line, 'petId ' || pet_id || ' has an entry already' AS error
     FROM staged JOIN inventory USING (pet_id)`,
  ]
  const rows = await transaction.query<{ line: string; error: string; count: string }>(
    `SELECT line, error, count(*) OVER () AS count
     FROM (${conflicts.slice(0, mode === 'insert' ? 2 : 1).join(' UNION ALL ')}) AS conflicts
     ORDER BY line LIMIT $1`,
    [limit],
  )
  return {
    first: rows.map(({ line, error }) => ({ line: Number(line), error })),
    count: Number(rows[0]?.count ?? 0),
  }
}

/** SQL expression of a column's new value in an existing entry. It is unchanged if the line has no value for the column. */
const stagedOrCurrent = ({ column, initial }: Column): string =>
  initial === undefined ? `staged.${column}` : `coalesce(staged.${column}, entry.${column})`

const ASSIGNMENTS = valueColumns.map((column) => `${column.column} = ${stagedOrCurrent(column)}`).join(', ')

/** SQL expressions of the values of a new entry. */
const NEW_VALUES = columns.map((column) => valueOrInitial(`staged.${column.column}`, column)).join(', ')

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

/** Returns how many entries an import in mode `replace` would remove, and how many there are. */
export async function countRemovals(transaction: Transaction): Promise<{ removed: number; total: number }> {
  const rows = await transaction.query<{ named: string; total: string }>(
    `SELECT count(*) AS named, (SELECT count(*) FROM inventory) AS total
     FROM staged JOIN inventory USING (pet_id)`,
  )
  const { named, total } = onlyRow(rows)
  return { removed: Number(total) - Number(named), total: Number(total) }
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
 * entry becomes `available`. Entries that the file does not change are neither written nor locked.
 *
 * @param onProgress called after each statement with the fraction of rows that are written, from 0 to 1
 */
export async function mergeStaged(
  transaction: Transaction,
  mode: ImportMode,
  onProgress: (fraction: number) => void,
): Promise<ImportCounts> {
  const [, removed] =
    mode === 'replace'
      ? await firstSupported(transaction, [removeInOne, removeByList], (remove) => remove(transaction))
      : [undefined, 0]
  const before = await countRows(transaction, 'inventory')
  const blocks = await countBlocks(transaction)
  const step = Math.max(MIN_MERGED_BLOCKS, Math.ceil(blocks / MERGE_STATEMENTS))
  let merges: Alternatives<Merge> = [mergeInOne, mergeInTwo]
  let written = 0
  for (let block = 0; block < blocks; block += step) {
    // PostgreSQL finds rows by block number without an index and without reading the other blocks.
    const part = `(SELECT * FROM staged WHERE ctid >= '(${block},0)' AND ctid < '(${block + step},0)') AS staged`
    const [supported, rows] = await firstSupported(transaction, merges, (merge) => merge(transaction, part))
    merges = [supported]
    written += rows
    onProgress(Math.min(1, (block + step) / blocks))
  }
  // Only imports add entries, and only one runs at a time.
  const added = (await countRows(transaction, 'inventory')) - before
  const staged = await countRows(transaction, 'staged')
  const changed = merges[0] === mergeInTwo ? written : written - added
  return { added, changed, unchanged: staged - changed - added, removed }
}

/**
 * The number of statements that write the rows of a large import, so that it can report progress, and the minimum number of
 * blocks of staged rows for each: 1,024 blocks are 8 MB, about 140,000 rows.
 */
const MERGE_STATEMENTS = 20
const MIN_MERGED_BLOCKS = 1024

async function countBlocks(transaction: Transaction): Promise<number> {
  const rows = await transaction.query<{ blocks: string }>(
    "SELECT pg_relation_size('staged') / current_setting('block_size')::bigint AS blocks",
  )
  return Number(onlyRow(rows).blocks)
}

/** Writes some of the staged rows; `staged` is the FROM item that selects them. */
type Merge = (transaction: Transaction, staged: string) => Promise<number>

type Alternatives<Alternative> = readonly [Alternative, ...Alternative[]]

/**
 * Tries alternatives until the server supports one, and returns it with its result. It tries the statements themselves, because
 * the version does not say what an extension or another server supports. An error of the last alternative is thrown.
 */
async function firstSupported<Alternative>(
  transaction: Transaction,
  [first, second, ...others]: Alternatives<Alternative>,
  run: (alternative: Alternative) => Promise<number>,
): Promise<[Alternative, number]> {
  if (second === undefined) return [first, await run(first)]
  await transaction.query('SAVEPOINT before_alternative')
  try {
    const result = await run(first)
    await transaction.query('RELEASE SAVEPOINT before_alternative')
    return [first, result]
  } catch (error) {
    if (!mayBeUnknown(error)) throw error
    await transaction.query('ROLLBACK TO SAVEPOINT before_alternative')
    return firstSupported(transaction, [second, ...others], run)
  }
}

/** Removes the entries whose petId is in no line. Citus does not support this statement for a distributed table. */
function removeInOne(transaction: Transaction): Promise<number> {
  return transaction.change(
    'DELETE FROM inventory AS entry WHERE NOT EXISTS (SELECT FROM staged WHERE staged.pet_id = entry.pet_id)',
  )
}

/** Removes the same entries in two steps: Citus sends the result of a subquery on local rows to the servers with the entries. */
async function removeByList(transaction: Transaction): Promise<number> {
  await transaction.query(
    `CREATE TEMPORARY TABLE missing ON COMMIT DROP AS SELECT pet_id FROM ${MISSING_ENTRIES}`,
  )
  return transaction.change(
    'DELETE FROM inventory AS entry USING (SELECT pet_id FROM missing) AS missing WHERE missing.pet_id = entry.pet_id',
  )
}

/**
 * Returns the number of added and changed rows. INSERT … ON CONFLICT would take twice as long for new entries. PostgreSQL 14 and
 * Citus do not support this statement.
 */
function mergeInOne(transaction: Transaction, staged: string): Promise<number> {
  return transaction.change(
    `MERGE INTO inventory AS entry USING ${staged} ON entry.pet_id = staged.pet_id
     WHEN MATCHED AND ${DIFFERS}
       THEN UPDATE SET ${ASSIGNMENTS}
     WHEN NOT MATCHED
       THEN INSERT (${COLUMN_NAMES}) VALUES (${NEW_VALUES})`,
  )
}

/** Returns the number of changed rows only: for the INSERT, Citus reports the number of given rows and not of added ones. */
async function mergeInTwo(transaction: Transaction, staged: string): Promise<number> {
  const changed = await transaction.change(
    `UPDATE inventory AS entry SET ${ASSIGNMENTS}
     FROM ${staged} WHERE staged.pet_id = entry.pet_id AND ${DIFFERS}`,
  )
  // NOT EXISTS may take quadratic time if the table was small when it was last analyzed.
  await transaction.change(
    `INSERT INTO inventory (${COLUMN_NAMES})
     SELECT ${NEW_VALUES} FROM ${staged}
     ON CONFLICT (pet_id) DO NOTHING`,
  )
  return changed
}

async function countRows(transaction: Transaction, table: 'inventory' | 'staged'): Promise<number> {
  const rows = await transaction.query<{ count: string }>(`SELECT count(*) AS count FROM ${table}`)
  return Number(onlyRow(rows).count)
}
