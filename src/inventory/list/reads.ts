import type { TextRow } from '../../database/copy-out.ts'
import { copyOutputReader } from '../../database/copy-text.ts'
import { onlyRow } from '../../database/only-row.ts'
import type { Database, Statement } from '../../database/pool.ts'
import { isCanceled, isUnknownColumn } from '../../database/sqlstate.ts'
import { ALL_ENTRIES, IS_COMPARABLE, TABLE_STATE } from './statements.ts'

/**
 * Identifies the committed state that a list was read from. If two validators are equal, nothing was committed in between,
 * and the table's name resolves to the same table. Only a primary has validators, because the snapshot of a standby omits
 * transactions in progress.
 */
export interface ListValidator {
  /** Identifies the server's start, the session, and the table that its name resolves to in this session. */
  readonly source: string
  /** Identifies the transactions that have ended: `pg_current_snapshot()` as text (PostgreSQL manual, section 9.27.8). */
  readonly snapshot: string
}

/** The state that a list was read from, with everything that is needed to find later changes. */
export interface ListState {
  /** Undefined if the list may lack a commit that the primary's validator covers. */
  readonly validator: ListValidator | undefined
  /** The snapshot's xmin: the transaction that wrote a change missing from the list has this id or a later one. */
  readonly xmin: bigint
  /**
   * The source of a validator, or the WAL history of a cluster. Transaction ids of two states are comparable only if their
   * histories are equal.
   */
  readonly history: string
  /** Identifies the definition of the table. If it is equal, an unchanged row has the same JSON text. */
  readonly table: string
  /**
   * Identifies when PostgreSQL parsed the prepared statement. Equal only if `table` is equal. Undefined if no prepared
   * statement read the list.
   */
  readonly parsedFor?: string | undefined
}

/** What PostgreSQL reports about the server and the table in the transaction that reads the entries. */
export interface ListSource {
  /** The text that `version()` returns. */
  readonly version: string
  /** The state of the entries, or an earlier one. Undefined if changes of the table cannot be detected reliably. */
  readonly state: ListState | undefined
}

/** How a list differs from an earlier one. */
export interface ListChanges {
  readonly state: ListState
  /** Number of entries in the list. */
  readonly count: number
  /** The entries that are new or may have changed, in ascending petId, one per line. The last line has no newline. */
  readonly lines: Buffer
}

/** Reads entries. Every method rejects with a DatabaseUnavailableError if PostgreSQL is unavailable. */
export interface ListReads {
  /**
   * Reads all entries as of one moment, in ascending petId. Each line is the JSON text of an entry, as the response schema
   * serializes it. Calls `onSource` once, before the first line.
   */
  lines(onSource: (source: ListSource) => void): AsyncIterable<Buffer>

  /**
   * Reads the entries that were written since `state`, and counts all entries, in one statement. Removed entries are not
   * reported: if there are any, `count` is less than the number of former and new entries together. Returns undefined if
   * the changes are unknown or more than `limit`, or if the server canceled the statement after its own time limit.
   */
  changesSince(state: ListState, limit: number): Promise<ListChanges | undefined>
}

/** The columns that a validator is made from, as the statements return them. */
export interface ValidatorRow {
  readonly source: string
  readonly snapshot: string
  readonly isReadOnly: boolean
}

interface ChangesRow extends ValidatorRow {
  readonly isStandby: boolean
  /** Whether the row has all changes if the table is the same. */
  readonly isExact: boolean
  /** Absent behind a pooler, where `table` is present instead. */
  readonly parsedFor?: string | null
  readonly table?: string | null
  readonly count: bigint
  readonly changed: number
  readonly lines: string | null
}

/** Columns of the row that `copyLines` reads before the lines. */
export const SOURCE_COLUMNS = `version(), ${TABLE_STATE}, ${IS_COMPARABLE}`

/**
 * Maximum number of transactions between two states that are compared. Row versions store the lower 32 bits of a
 * transaction id, so PostgreSQL can order only ids that are less than 2^31 apart.
 */
const MAX_TRANSACTION_AGE = 2n ** 30n

/**
 * Returns the bounds in the text of a snapshot: all transactions before `xmin` have ended, and none from `xmax` on has
 * (PostgreSQL manual, section 9.27.8).
 */
export function boundsOf(snapshot: string): { xmin: bigint; xmax: bigint } {
  const [xmin = '', xmax = ''] = snapshot.split(':')
  return { xmin: BigInt(xmin), xmax: BigInt(xmax) }
}

/** Converts a position in the WAL (an LSN such as `16/B374D848`) to a number. */
export function positionOf(lsn: string): bigint {
  const [high = '', low = ''] = lsn.split('/')
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`)
}

/** A pool that reads changes, and its statements from `changesText` and `tableText`. */
export interface ChangesReader {
  readonly query: Database['query']
  readonly statistics: Database['statistics']
  readonly isPooled: boolean
  readonly changes: Statement
  readonly table: Statement
}

/** Reads the changes since `former`. Returns undefined if they are unknown or more than `limit`. */
export async function queryChanges(
  reader: ChangesReader,
  former: ListState,
  limit: number,
): Promise<ChangesRow | undefined> {
  const values = [BigInt.asUintN(32, former.xmin), limit]
  const rows = await reader.query<ChangesRow>(reader.changes, values).catch((error: unknown) => {
    // Behind a pooler, the role's statement_timeout may be too short for this statement. `lines` sets its own. A view, which may
    // have replaced the table, has no system columns.
    if (isCanceled(error) || isUnknownColumn(error)) return undefined
    throw error
  })
  if (rows === undefined) return undefined
  const row = onlyRow(rows)
  const { xmax } = boundsOf(row.snapshot)
  const areKnown = row.isExact && xmax - former.xmin < MAX_TRANSACTION_AGE && row.changed <= limit
  return areKnown && (await isSameTable(reader, former, row)) ? row : undefined
}

/** Returns the changes in a row from `queryChanges`, with the resulting state. */
export function changesOf(
  row: ChangesRow,
  { table }: ListState,
  latest: Pick<ListState, 'validator' | 'history'>,
): ListChanges {
  const { xmin } = boundsOf(row.snapshot)
  return {
    state: { ...latest, xmin, table, parsedFor: row.parsedFor ?? undefined },
    count: Number(row.count),
    lines: Buffer.from(row.lines ?? ''),
  }
}

/** Whether the table still has the definition of an earlier state. May query the table's state. */
async function isSameTable(
  { query, statistics, isPooled, table: statement }: ChangesReader,
  { table, parsedFor }: ListState,
  row: ChangesRow,
): Promise<boolean> {
  if (isPooled) return row.table === table
  if (row.parsedFor == null) return false
  if (row.parsedFor === parsedFor) return true
  // Every change of the definition, even one that reverts another, gives a new state. So if the state is equal after the
  // read, it was equal during the read.
  const { opened } = statistics()
  const [latest] = await query<{ source: string; table: string | null }>(statement)
  return latest?.table === table && latest.source === row.source && statistics().opened === opened
}

/** Streams all entries with COPY. Calls `onRow` once, with the row of `columns`, before the first chunk. */
export async function* copyLines(
  database: Database,
  columns: string,
  onRow: (row: TextRow) => void,
): AsyncGenerator<Buffer> {
  const read = copyOutputReader()
  let row: TextRow | undefined
  const pieces = database.copy(ALL_ENTRIES, {
    text: `SELECT ${columns}`,
    onRow: (received) => {
      row = received
    },
  })
  for await (const piece of pieces) {
    if (row !== undefined) onRow(row)
    row = undefined
    yield read(piece)
  }
  // COPY sends no data for an empty table.
  if (row !== undefined) onRow(row)
}
