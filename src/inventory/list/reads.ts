import type { TextRow } from '../../database/copy-out.ts'
import { copyOutputReader } from '../../database/copy-text.ts'
import { isCancelled } from '../../database/failures.ts'
import { isPlainPostgres } from '../../database/plain-postgres.ts'
import type { Database, Statement } from '../../database/pool.ts'
import {
  ALL_ENTRIES,
  changesText,
  IS_COMPARABLE,
  IS_READ_ONLY,
  positionText,
  SNAPSHOT,
  sourceText,
  TABLE_STATE,
  tableText,
} from './statements.ts'

/**
 * Identifies the committed state that a list was read from: where two validators are equal, nothing was committed in
 * between, and the name of the table stands for the same table. Only a primary has one: the snapshot of a standby does not
 * name the transactions in progress.
 */
export interface ListValidator {
  /** The start of the server, the session, and the table that the session finds by its name. */
  readonly source: string
  /** Which transactions have ended (PostgreSQL manual, section 9.27.9, `pg_current_snapshot`). */
  readonly snapshot: string
}

/** The state that a list was read from, as far as later changes can be found from it. */
export interface ListState {
  /** Undefined where the list may lack a commit that the validator covers. */
  readonly validator: ListValidator | undefined
  /** What the list lacks was written by a transaction that is not older than this one. */
  readonly oldest: bigint
  /** Equal where transaction ids mean the same: the source of a validator, or the history of a cluster's WAL. */
  readonly history: string
  /** The definition of the table. Where it is equal, a row that stayed has the same text. */
  readonly table: string
  /** Equal only where `table` is, for one prepared statement; undefined if no prepared statement read the list. */
  readonly parsedFor?: string | undefined
}

/** What PostgreSQL says of the table in the transaction that reads it. */
export interface ListSource {
  /** The version of the server in its own words. */
  readonly version: string
  /** That of the entries, or an earlier one. Undefined where a change could go unnoticed. */
  readonly state: ListState | undefined
}

/** How a list differs from an earlier one. */
export interface ListChanges {
  readonly state: ListState
  /** How many entries there are. */
  readonly count: number
  /** The entries that are new or may have changed, in ascending petId, each a line; the last one has no newline. */
  readonly lines: Buffer
}

/** Reads entries. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface ListReads {
  /**
   * Reads every entry in ascending petId as of one moment, each a line of the JSON text that the response schema makes of
   * it. `onSource` is called once, before the first line.
   */
  lines(onSource: (source: ListSource) => void): AsyncIterable<Buffer>

  /**
   * Reads the entries that were written since that state, in one statement that counts all entries. Whether entries were
   * removed is not among the changes: then there are fewer than the former ones and the new ones together. Undefined where
   * the changes are not known, are more than `limit`, or the server cancelled the statement by a time limit of its own.
   */
  changesSince(state: ListState, limit: number): Promise<ListChanges | undefined>
}

/** Where the primary stands, and so how far a standby has to be for a list from there to be exact. */
export interface PrimaryPosition {
  readonly validator: ListValidator
  /** The position in the WAL before which every acknowledged commit is. */
  readonly acknowledged: bigint
  /** The position in the WAL before which every commit is that the validator covers. */
  readonly visible: bigint
  /** Which table the name leads to, of which database. */
  readonly place: string
  /** The server's timeline and start, as `ServerIdentity` has them. */
  readonly timeline: number
  readonly startedAt: string
}

/** Reads entries from the primary. */
export interface PrimaryListReads extends ListReads {
  /** The validator of a list that would be read now. It reads no table and so waits for no lock. */
  validator(): Promise<ListValidator>

  /** Whether transaction ids of that state mean the same on the server with that validator. */
  sharesHistory(state: ListState, validator: ListValidator): boolean

  /** The validator and the position in the WAL, in one statement; it waits for no lock either. */
  position(): Promise<PrimaryPosition>
}

interface ValidatorRow {
  readonly source: string
  readonly snapshot: string
  readonly isReadOnly: boolean
}

interface PositionRow extends ValidatorRow {
  readonly place: string
  readonly flushed: string | null
  readonly inserted: string | null
  readonly timeline: string | null
  readonly startedAt: string
  readonly isAsynchronous: boolean
}

interface ChangesRow extends ValidatorRow {
  readonly isStandby: boolean
  readonly isLocal: boolean
  /** Absent behind a pooler, which has `table` instead. */
  readonly parsedFor?: string | null
  readonly table?: string | null
  readonly count: bigint
  readonly changed: number
  readonly lines: string | null
}

/** Columns of a row that `linesOf` reads before the lines. */
export const SOURCE_COLUMNS = `version(), ${TABLE_STATE}, ${IS_COMPARABLE}`

/**
 * How many transactions there may be between two states that are compared. Row versions have the lower 32 bits of the
 * number of their transaction, of which half are after a given one and half before it.
 */
const OLDEST_AGE = 2n ** 30n

/** The oldest transaction in progress, and the first that has not begun, by the text of a snapshot. */
export function boundsOf(snapshot: string): { oldest: bigint; next: bigint } {
  const [oldest = '', next = ''] = snapshot.split(':')
  return { oldest: BigInt(oldest), next: BigInt(next) }
}

/** A position in the WAL, such as `16/B374D848`, as a number. */
export function positionOf(lsn: string): bigint {
  const [high = '', low = ''] = lsn.split('/')
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`)
}

/** The pool that reads changes, and its statements: those of `changesText` and `tableText`. */
export interface ChangesReader {
  readonly query: Database['query']
  readonly statistics: Database['statistics']
  readonly isPooled: boolean
  readonly changes: Statement
  readonly table: Statement
}

/** Reads the changes; undefined if they are not known or are more than `limit`. */
export async function queryChanges(
  reader: ChangesReader,
  former: ListState,
  limit: number,
): Promise<ChangesRow | undefined> {
  const values = [BigInt.asUintN(32, former.oldest), limit]
  const rows = await reader.query<ChangesRow>(reader.changes, values).catch((error: unknown) => {
    // Behind a pooler, the role has a limit for every statement; `lines` sets one for itself.
    if (isCancelled(error)) return undefined
    throw error
  })
  if (rows === undefined) return undefined
  const [row] = rows
  if (row === undefined) throw new Error('PostgreSQL has answered without a row')
  const { next } = boundsOf(row.snapshot)
  const areKnown = row.isLocal && next - former.oldest < OLDEST_AGE && row.changed <= limit
  return areKnown && (await isSameTable(reader, former, row)) ? row : undefined
}

/** The changes in a row that `queryChanges` has read. */
export function changesOf(
  row: ChangesRow,
  { table }: ListState,
  latest: Pick<ListState, 'validator' | 'history'>,
): ListChanges {
  const { oldest } = boundsOf(row.snapshot)
  return {
    state: { ...latest, oldest, table, parsedFor: row.parsedFor ?? undefined },
    count: Number(row.count),
    lines: Buffer.from(row.lines ?? ''),
  }
}

/** Whether the definition of the table is that of an earlier state. */
async function isSameTable(
  { query, statistics, isPooled, table: statement }: ChangesReader,
  { table, parsedFor }: ListState,
  row: ChangesRow,
): Promise<boolean> {
  if (isPooled) return row.table === table
  if (row.parsedFor == null) return false
  if (row.parsedFor === parsedFor) return true
  // Where the state is the same later, it was the same in between: no change of it can be undone.
  const { opened } = statistics()
  const [latest] = await query<{ source: string; table: string | null }>(statement)
  return latest?.table === table && latest.source === row.source && statistics().opened === opened
}

/** Reads all entries by COPY. `onRow` gets the row of `columns` once, before the first piece. */
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
  // Of a list without entries there is no piece.
  if (row !== undefined) onRow(row)
}

/**
 * Reads from the primary by one pool.
 *
 * @param history says which history the WAL of the primary in use has, where that is known
 */
export function primaryListReads(
  lists: Database,
  history: () => string | undefined = () => undefined,
): PrimaryListReads {
  const source = sourceText(lists)
  const changes: ChangesReader = {
    query: lists.query,
    statistics: lists.statistics,
    isPooled: lists.isPooled,
    changes: { name: 'inventory_list_changes', text: changesText(source, !lists.isPooled) },
    table: { name: 'inventory_list_table', text: tableText(source) },
  }
  /**
   * A crash ends every server process without another start of the server, and numbers of transactions that had not
   * committed may be assigned again after it. The next connection may get the same process id, so connections count.
   */
  const validatorOf = (text: string, snapshot: string, isReadOnly: boolean): ListValidator => {
    // Where nothing can be written, the updates of other processes may be going to another server already.
    if (isReadOnly) throw lists.refuseServer()
    return { source: `${text} ${lists.statistics().opened} ${lists.generation()}`, snapshot }
  }
  const sourceIn = ([text, snapshot, isReadOnly, version, table, isComparable]: TextRow): ListSource => {
    if (text == null || snapshot == null || version == null)
      throw new Error('PostgreSQL has not named the source of a list')
    const validator = validatorOf(text, snapshot, isReadOnly === 't')
    const isExact = isComparable === 't' && table != null && isPlainPostgres(version)
    const { oldest } = boundsOf(snapshot)
    return { version, state: isExact ? { validator, oldest, history: validator.source, table } : undefined }
  }

  const sharesHistory = (state: ListState, validator: ListValidator): boolean =>
    state.history === validator.source || state.history === history()

  return {
    sharesHistory,

    lines: (onSource) =>
      copyLines(lists, `${source}, ${SNAPSHOT}, ${IS_READ_ONLY}, ${SOURCE_COLUMNS}`, (row) =>
        onSource(sourceIn(row)),
      ),

    async changesSince(state, limit) {
      const row = await queryChanges(changes, state, limit)
      if (row === undefined) return undefined
      const validator = validatorOf(row.source, row.snapshot, row.isReadOnly)
      if (!sharesHistory(state, validator)) return undefined
      return changesOf(row, state, { validator, history: validator.source })
    },

    async validator() {
      const [row] = await lists.query<ValidatorRow>({
        name: 'inventory_list_validator',
        text: `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly"`,
      })
      if (row === undefined) throw new Error('PostgreSQL has answered without a row')
      return validatorOf(row.source, row.snapshot, row.isReadOnly)
    },

    async position() {
      const text = positionText(source)
      const [row] = await lists.query<PositionRow>({ name: 'inventory_list_position', text })
      if (row === undefined) throw new Error('PostgreSQL has answered without a row')
      const { place, flushed, inserted, timeline, startedAt, isAsynchronous } = row
      const validator = validatorOf(row.source, row.snapshot, row.isReadOnly)
      if (flushed === null || inserted === null || timeline === null) throw lists.refuseServer()
      const visible = positionOf(inserted)
      return {
        validator,
        acknowledged: isAsynchronous ? visible : positionOf(flushed),
        visible,
        place,
        timeline: Number.parseInt(timeline, 16),
        startedAt,
      }
    },
  }
}
