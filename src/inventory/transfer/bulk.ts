import type { Readable, Writable } from 'node:stream'
import { copyOutputReader, toCopyText } from '../../database/copy-text.ts'
import { isWrongKind, mayBeUnknown } from '../../database/failures.ts'
import type { Transaction } from '../../database/transaction.ts'
import {
  COLUMN_NAMES,
  type Column,
  columns,
  ENTRY_JSON,
  selectFields,
  valueColumns,
  valueOrInitial,
} from '../columns.ts'
import type { PetStatus } from '../schemas.ts'
import type { ImportEntry } from './import-line.ts'

/** What happens to entries: only new ones are added, all are written, or they become the whole inventory. */
export type ImportMode = 'insert' | 'upsert' | 'replace'

/** How an import changes the inventory, in numbers of entries. */
export interface ImportCounts {
  readonly added: number
  readonly changed: number
  readonly unchanged: number
  readonly removed: number
}

/** A line whose entry is valid, but conflicts with another line or with the table. */
export interface Conflict {
  readonly line: number
  readonly fault: string
}

/** Held by the one import that changes the inventory; two would wait for each other's rows in different orders. */
const IMPORT_LOCK = 7_301_482_266

/** The text that `stageEntries` takes for an entry: the COPY format of PostgreSQL (manual, COPY, Text Format). */
export function stagedText(line: number, entry: ImportEntry): string {
  let text = `${line}`
  for (const value of entry) text += `\t${toCopyText(value)}`
  return `${text}\n`
}

/** Makes a table for the entries of an import, which goes with the transaction, and returns the way into it. */
export async function stageEntries(transaction: Transaction): Promise<Writable> {
  await transaction.query(
    `CREATE TEMPORARY TABLE staged (
       line bigint, ${columns.map(({ column, type }) => `${column} ${type}`).join(', ')}
     ) ON COMMIT DROP`,
  )
  return transaction.copyIn('COPY staged FROM STDIN')
}

/**
 * Prepares what was staged, which is complete now, and finds the lines that cannot be imported together: those that
 * repeat a petId, and in mode `insert` those whose petId has an entry. Returns the first and how many there are.
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
    `SELECT line, 'petId ' || pet_id || ' is in line ' || earlier || ' already' AS fault
     FROM (SELECT line, pet_id, lag(line) OVER (PARTITION BY pet_id ORDER BY line) AS earlier FROM staged) AS repeated
     WHERE earlier IS NOT NULL`,
    `SELECT line, 'petId ' || pet_id || ' has an entry already' AS fault
     FROM staged JOIN inventory USING (pet_id)`,
  ]
  const rows = await transaction.query<{ line: string; fault: string; count: string }>(
    `SELECT line, fault, count(*) OVER () AS count
     FROM (${conflicts.slice(0, mode === 'insert' ? 2 : 1).join(' UNION ALL ')}) AS conflicts
     ORDER BY line LIMIT $1`,
    [limit],
  )
  return {
    first: rows.map(({ line, fault }) => ({ line: Number(line), fault })),
    count: Number(rows[0]?.count ?? 0),
  }
}

/** What a line makes of an entry that is there, by columns: where it leaves a value open, the entry keeps its own. */
const keptOrStaged = ({ column, initial }: Column): string =>
  initial === undefined ? `staged.${column}` : `coalesce(staged.${column}, entry.${column})`

const ASSIGNMENTS = valueColumns.map((column) => `${column.column} = ${keptOrStaged(column)}`).join(', ')

/** What a line makes of a new entry. */
const NEW_VALUES = columns.map((column) => valueOrInitial(`staged.${column.column}`, column)).join(', ')

const DIFFERS = `(${valueColumns.map(({ column }) => `entry.${column}`).join(', ')})
  IS DISTINCT FROM (${valueColumns.map(keptOrStaged).join(', ')})`

/** The entries that no line names. */
const UNNAMED_ENTRIES = 'inventory AS entry LEFT JOIN staged USING (pet_id) WHERE staged.pet_id IS NULL'

/**
 * How importing what was staged, which has no conflicts, would change the inventory as it is now. A removal is counted as
 * an entry that no line names: an anti-join of a distributed table with a temporary one is not supported by Citus.
 */
export async function previewImport(transaction: Transaction, mode: ImportMode): Promise<ImportCounts> {
  const [counts] = await transaction.query<Record<'added' | 'changed' | 'unchanged' | 'total', string>>(
    `SELECT count(*) FILTER (WHERE entry.pet_id IS NULL) AS added,
            count(*) FILTER (WHERE entry.pet_id IS NOT NULL AND ${DIFFERS}) AS changed,
            count(*) FILTER (WHERE entry.pet_id IS NOT NULL AND NOT ${DIFFERS}) AS unchanged,
            (SELECT count(*) FROM inventory) AS total
     FROM staged LEFT JOIN inventory AS entry USING (pet_id)`,
  )
  const changed = Number(counts?.changed)
  const unchanged = Number(counts?.unchanged)
  return {
    added: Number(counts?.added),
    changed,
    unchanged,
    removed: mode === 'replace' ? Number(counts?.total) - changed - unchanged : 0,
  }
}

/** How many entries a replacing import would remove, and of how many. */
export async function countRemovals(transaction: Transaction): Promise<{ removed: number; total: number }> {
  const [row] = await transaction.query<{ named: string; total: string }>(
    `SELECT count(*) AS named, (SELECT count(*) FROM inventory) AS total
     FROM staged JOIN inventory USING (pet_id)`,
  )
  const total = Number(row?.total)
  return { removed: total - Number(row?.named), total }
}

/**
 * The entries that importing what was staged would change, as CSV in ascending petId: what each is now and would be,
 * empty where there is no entry. `change` is `add`, `change` or `remove`.
 */
export function listChanges(transaction: Transaction, mode: ImportMode): Readable {
  const changes = valueColumns.map((column) => {
    const { field, column: name } = column
    const newName = `new${field.charAt(0).toUpperCase()}${field.slice(1)}`
    return `entry.${name} AS "${field}", ${valueOrInitial(keptOrStaged(column), column)} AS "${newName}"`
  })
  const removals = `
    UNION ALL SELECT pet_id, 'remove', ${valueColumns.map(({ column }) => `entry.${column}, NULL`).join(', ')}
    FROM ${UNNAMED_ENTRIES}`
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

/** An entry as the inventory has it; its petId is a decimal int64. */
export interface LowEntry {
  readonly petId: string
  readonly quantity: number
  readonly status: PetStatus
  /** Its JSON text. */
  readonly json: string
}

/** The entries with a quantity below `limit`, of one status if it is given, the lowest first. */
export function findLowEntries(
  transaction: Transaction,
  limit: number,
  status: PetStatus | undefined,
): Promise<LowEntry[]> {
  return transaction.query<LowEntry>(
    `SELECT pet_id::text AS "petId", quantity, status, ${ENTRY_JSON} AS json FROM inventory
     WHERE quantity < $1 AND ($2::text IS NULL OR status = $2) ORDER BY quantity, pet_id`,
    [limit, status ?? null],
  )
}

/**
 * Imports what was staged and has no conflicts. An entry whose line has no status keeps the one it has; a new one is
 * available. Entries that the file does not change are neither written nor locked. `onProgress` learns from time to time
 * which part of the rows is done, from 0 to 1.
 */
export async function mergeStaged(
  transaction: Transaction,
  mode: ImportMode,
  onProgress: (part: number) => void,
): Promise<ImportCounts> {
  const [, removed] =
    mode === 'replace'
      ? await firstSupported(transaction, [removeInOne, removeByList], (way) => way(transaction))
      : [undefined, 0]
  const before = await countRows(transaction, 'inventory')
  const blocks = await countBlocks(transaction)
  const step = Math.max(MERGED_BLOCKS, Math.ceil(blocks / MERGES))
  let ways: readonly Merge[] = [mergeInOne, mergeInTwo]
  let written = 0
  for (let block = 0; block < blocks; block += step) {
    // By its place in the table, a part is found without an index and without reading the rest.
    const part = `(SELECT * FROM staged WHERE ctid >= '(${block},0)' AND ctid < '(${block + step},0)') AS staged`
    const [way, rows] = await firstSupported(transaction, ways, (merge) => merge(transaction, part))
    ways = [way]
    written += rows
    onProgress(Math.min(1, (block + step) / blocks))
  }
  // Only imports add entries, and one runs at a time.
  const added = (await countRows(transaction, 'inventory')) - before
  const staged = await countRows(transaction, 'staged')
  const changed = ways[0] === mergeInTwo ? written : written - added
  return { added, changed, unchanged: staged - changed - added, removed }
}

/**
 * How many statements write the rows of a large import, for its progress to be seen, and how many blocks of staged rows
 * each has at least: 1,024 are 8 MB, about 140,000 rows.
 */
const MERGES = 20
const MERGED_BLOCKS = 1024

async function countBlocks(transaction: Transaction): Promise<number> {
  const [row] = await transaction.query<{ blocks: string }>(
    "SELECT pg_relation_size('staged') / current_setting('block_size')::bigint AS blocks",
  )
  return Number(row?.blocks)
}

/** Writes the rows of a part of what was staged. */
type Merge = (transaction: Transaction, staged: string) => Promise<number>

/**
 * Runs the first of several ways that the server supports, and returns that way and its result. The statement itself is the
 * question: what an extension or another server supports depends on more than its version. The last way has no
 * alternative, so that its error is raised.
 */
async function firstSupported<Way>(
  transaction: Transaction,
  ways: readonly Way[],
  run: (way: Way) => Promise<number>,
): Promise<[Way, number]> {
  const [way, ...others] = ways
  if (way === undefined) throw new Error('There is no way to choose from')
  if (others.length === 0) return [way, await run(way)]
  await transaction.query('SAVEPOINT before_way')
  try {
    const result = await run(way)
    await transaction.query('RELEASE SAVEPOINT before_way')
    return [way, result]
  } catch (error) {
    if (!mayBeUnknown(error)) throw error
    await transaction.query('ROLLBACK TO SAVEPOINT before_way')
    return firstSupported(transaction, others, run)
  }
}

/** Removes the entries that no line names. Citus has no such DELETE for a table that it distributes. */
function removeInOne(transaction: Transaction): Promise<number> {
  return transaction.change(
    'DELETE FROM inventory AS entry WHERE NOT EXISTS (SELECT FROM staged WHERE staged.pet_id = entry.pet_id)',
  )
}

/** Citus sends a subquery of local rows alone to the servers that have the entries. */
async function removeByList(transaction: Transaction): Promise<number> {
  await transaction.query(
    `CREATE TEMPORARY TABLE unnamed ON COMMIT DROP AS SELECT pet_id FROM ${UNNAMED_ENTRIES}`,
  )
  return transaction.change(
    'DELETE FROM inventory AS entry USING (SELECT pet_id FROM unnamed) AS unnamed WHERE unnamed.pet_id = entry.pet_id',
  )
}

/**
 * Returns how many rows were added or changed. INSERT … ON CONFLICT takes twice the time for new entries; PostgreSQL 14 and
 * Citus know no such MERGE.
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

/** Returns how many rows were changed. Of an INSERT, Citus reports how many rows it was given, not how many it added. */
async function mergeInTwo(transaction: Transaction, staged: string): Promise<number> {
  const changed = await transaction.change(
    `UPDATE inventory AS entry SET ${ASSIGNMENTS}
     FROM ${staged} WHERE staged.pet_id = entry.pet_id AND ${DIFFERS}`,
  )
  // Not by NOT EXISTS: on a table that was small when it was last analyzed, it may take time by the square of the rows.
  await transaction.change(
    `INSERT INTO inventory (${COLUMN_NAMES})
     SELECT ${NEW_VALUES} FROM ${staged}
     ON CONFLICT (pet_id) DO NOTHING`,
  )
  return changed
}

async function countRows(transaction: Transaction, table: 'inventory' | 'staged'): Promise<number> {
  const [row] = await transaction.query<{ count: string }>(`SELECT count(*) AS count FROM ${table}`)
  return Number(row?.count)
}

/** The formats of import and export. */
export type FileFormat = 'csv' | 'ndjson'

/**
 * Keeps the table from being rewritten until the transaction ends. To be called first in a read-only one: its first query
 * takes the snapshot, and TRUNCATE or a rewrite that commits later leaves no row that this snapshot can see (PostgreSQL
 * manual, section 13.6). LOCK TABLE takes none; it refuses materialized views and foreign tables.
 */
export async function lockEntries(transaction: Transaction): Promise<void> {
  await transaction.query('SAVEPOINT before_lock')
  try {
    await transaction.query('LOCK TABLE inventory IN ACCESS SHARE MODE')
  } catch (error) {
    if (!isWrongKind(error)) throw error
    await transaction.query('ROLLBACK TO SAVEPOINT before_lock')
  }
}

/** How many entries there are, in the snapshot of the transaction. */
export function countEntries(transaction: Transaction): Promise<number> {
  return countRows(transaction, 'inventory')
}

/** The whole inventory in ascending petId as the text of a file, from the snapshot of the transaction. */
export async function* exportEntries(transaction: Transaction, format: FileFormat): AsyncGenerator<Buffer> {
  const ordered = 'FROM inventory ORDER BY pet_id'
  if (format === 'csv') {
    yield* transaction.copyOut(`COPY (SELECT ${selectFields()} ${ordered}) TO STDOUT (FORMAT csv, HEADER)`)
    return
  }
  const read = copyOutputReader()
  for await (const piece of transaction.copyOut(`COPY (SELECT ${ENTRY_JSON} ${ordered}) TO STDOUT`))
    yield read(piece)
}
