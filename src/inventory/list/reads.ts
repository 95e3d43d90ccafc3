import type { Database } from '../../database/database.ts'
import { isCanceled, isUnknownColumn } from '../../database/errors/sqlstate.ts'
import type { TextRow } from '../../database/protocol/copy-out.ts'
import { copyOutputReader } from '../../database/protocol/copy-text.ts'
import { onlyRow } from '../../database/protocol/only-row.ts'
import { isPlainPostgres } from '../../database/server/plain-postgres.ts'
import { IS_READ_ONLY } from '../../database/server/server-status.ts'
import {
  ALL_ENTRIES,
  changesText,
  IS_COMPARABLE,
  SNAPSHOT,
  sourceText,
  TABLE_STATE,
  tableText,
} from './statements.ts'

/**
 * Identifies the committed state that a list was read from. If two validators are equal, nothing was committed in between,
 * and the table's name resolves to the same table.
 */
export interface ListValidator {
  /**
   * Identifies the server's start, the session, and the table that its name resolves to in this session. Transaction ids of
   * two states are comparable only if their sources are equal.
   */
  readonly source: string
  /** Identifies the transactions that have ended: `pg_current_snapshot()` as text (PostgreSQL manual, section 9.27.8). */
  readonly snapshot: string
}

/** The state that a list was read from, with everything that is needed to find later changes. */
export interface ListState {
  readonly validator: ListValidator
  /** The snapshot's xmin: the transaction that wrote a change missing from the list has this id or a later one. */
  readonly xmin: bigint
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

  /** Returns the validator of a list read now. Reads no table, so it does not wait for locks. */
  validator(): Promise<ListValidator>
}

/** The columns that a validator is made from, as the statements return them. */
interface ValidatorRow {
  readonly source: string
  readonly snapshot: string
  readonly isReadOnly: boolean
}

interface ChangesRow extends ValidatorRow {
  /** Whether the row has all changes if the table is the same. */
  readonly isExact: boolean
  /** Absent behind a pooler, where `table` is present instead. */
  readonly parsedFor?: string | null
  readonly table?: string | null
  readonly count: bigint
  readonly changed: number
  readonly lines: string | null
}

/**
 * Maximum number of transactions between two states that are compared. Row versions store the lower 32 bits of a
 * transaction id, so PostgreSQL can order only ids that are less than 2^31 apart.
 */
const MAX_TRANSACTION_AGE = 2n ** 30n

/**
 * Returns the bounds in the text of a snapshot: all transactions before `xmin` have ended, and none from `xmax` on has
 * (PostgreSQL manual, section 9.27.8).
 */
function boundsOf(snapshot: string): { xmin: bigint; xmax: bigint } {
  const [xmin = '', xmax = ''] = snapshot.split(':')
  return { xmin: BigInt(xmin), xmax: BigInt(xmax) }
}

/** Returns reads over one pool. */
export function listReads(lists: Database): ListReads {
  const source = sourceText(lists)
  const changes = { name: 'inventory_list_changes', text: changesText(source, !lists.isPooled) }
  const table = { name: 'inventory_list_table', text: tableText(source) }
  const validator = {
    name: 'inventory_list_validator',
    text: `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly"`,
  }
  const whole = `SELECT ${source}, ${SNAPSHOT}, ${IS_READ_ONLY}, version(), ${TABLE_STATE}, ${IS_COMPARABLE}`

  /**
   * Returns a validator that includes the number of connections opened so far. After a crash, the postmaster restarts all
   * server processes but keeps its start time, PostgreSQL may reuse the ids of transactions that had not committed, and a
   * new connection may get the same process id.
   */
  const validatorOf = (text: string, snapshot: string, isReadOnly: boolean): ListValidator => {
    // If this server is read-only, other processes may already be sending their updates to another one.
    if (isReadOnly) throw lists.refuseServer()
    return { source: `${text} ${lists.statistics().opened} ${lists.generation()}`, snapshot }
  }

  const sourceIn = ([text, snapshot, isReadOnly, version, table, isComparable]: TextRow): ListSource => {
    if (text == null || snapshot == null || version == null)
      throw new Error('PostgreSQL did not report the source of the list')
    const validator = validatorOf(text, snapshot, isReadOnly === 't')
    const isExact = isComparable === 't' && table != null && isPlainPostgres(version)
    return { version, state: isExact ? { validator, xmin: boundsOf(snapshot).xmin, table } : undefined }
  }

  /** Whether the table still has the definition of an earlier state. May query the table's state. */
  const isSameTable = async (state: ListState, row: ChangesRow): Promise<boolean> => {
    if (lists.isPooled) return row.table === state.table
    if (row.parsedFor == null) return false
    if (row.parsedFor === state.parsedFor) return true
    // Every change of the definition, even one that reverts another, gives a new state. So if the state is equal after the
    // read, it was equal during the read.
    const { opened } = lists.statistics()
    const [latest] = await lists.query<{ source: string; table: string | null }>(table)
    return (
      latest?.table === state.table && latest.source === row.source && lists.statistics().opened === opened
    )
  }

  return {
    async *lines(onSource) {
      const read = copyOutputReader()
      let row: TextRow | undefined
      const chunks = lists.copy(ALL_ENTRIES, {
        text: whole,
        onRow: (received) => {
          row = received
        },
      })
      for await (const chunk of chunks) {
        if (row !== undefined) onSource(sourceIn(row))
        row = undefined
        yield read(chunk)
      }
      // COPY sends no data for an empty table.
      if (row !== undefined) onSource(sourceIn(row))
    },

    async changesSince(state, limit) {
      const values = [BigInt.asUintN(32, state.xmin), limit]
      const rows = await lists.query<ChangesRow>(changes, values).catch((error: unknown) => {
        // Behind a pooler, the role's statement_timeout may be too short for this statement. `lines` sets its own. A view,
        // which may have replaced the table, has no system columns.
        if (isCanceled(error) || isUnknownColumn(error)) return undefined
        throw error
      })
      if (rows === undefined) return undefined
      const row = onlyRow(rows)
      const { xmin, xmax } = boundsOf(row.snapshot)
      const areKnown = row.isExact && xmax - state.xmin < MAX_TRANSACTION_AGE && row.changed <= limit
      if (!areKnown || !(await isSameTable(state, row))) return undefined
      const validator = validatorOf(row.source, row.snapshot, row.isReadOnly)
      if (validator.source !== state.validator.source) return undefined
      return {
        state: { validator, xmin, table: state.table, parsedFor: row.parsedFor ?? undefined },
        count: Number(row.count),
        lines: Buffer.from(row.lines ?? ''),
      }
    },

    async validator() {
      const row = onlyRow(await lists.query<ValidatorRow>(validator))
      return validatorOf(row.source, row.snapshot, row.isReadOnly)
    },
  }
}
