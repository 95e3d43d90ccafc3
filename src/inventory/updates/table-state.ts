import { onlyRow } from '../../database/only-row.ts'
import type { StatementRunner } from '../../database/statement.ts'
import { IS_RECORDING } from '../history/recording.ts'

/** Age at which the state is read again, while updates go on. */
const REFRESH_MS = 1000

/** A state that is older says nothing about the history. */
export const MAX_AGE_MS = 2000

/** Each table that Citus manages has a trigger of Citus's own: one that it distributes or copies, or a local one. */
const IS_DISTRIBUTED = `EXISTS (SELECT FROM pg_trigger
    JOIN pg_depend ON pg_depend.classid = 'pg_proc'::regclass AND pg_depend.objid = pg_trigger.tgfoid AND pg_depend.deptype = 'e'
    JOIN pg_extension ON pg_extension.oid = pg_depend.refobjid AND pg_extension.extname = 'citus'
    WHERE pg_trigger.tgrelid = to_regclass('inventory'))`

/** The statement that reads the state. */
export const TABLE_STATE = `SELECT ${IS_RECORDING} AS "namesCallers", ${IS_DISTRIBUTED} AS "isDistributed"`

/** What updates depend on that operators may change while the service runs. */
export interface TableState {
  /**
   * Whether Citus may distribute the table over several servers. If so, each update is a statement of its own, which Citus passes on to
   * the server with the entry. A statement for entries on several servers is correct, but costs work on every shard and a commit in two
   * phases.
   */
  readonly isDistributed: boolean
  /**
   * Whether an update has to name its caller: the history records changes, or did not long ago, or that is not known. Citus distributes
   * no table with triggers, and supports no such statement for one that it distributes.
   */
  readonly namesCallers: boolean
}

/** Returns a function that returns the latest state, and reads it in the background if it is old: no update waits for it. */
export function tableState(database: StatementRunner): () => TableState {
  let state: TableState = { isDistributed: false, namesCallers: true }
  let readAt = Number.NEGATIVE_INFINITY
  let nextRead = Number.NEGATIVE_INFINITY

  const read = async (startedAt: number): Promise<void> => {
    nextRead = Number.POSITIVE_INFINITY
    try {
      state = onlyRow(await database.query<TableState>(TABLE_STATE))
      readAt = startedAt
    } catch {
      // The readiness check reports why.
    }
    nextRead = startedAt + REFRESH_MS
  }

  void read(performance.now())
  return () => {
    const now = performance.now()
    if (now >= nextRead) void read(now)
    return state.isDistributed || now - readAt <= MAX_AGE_MS ? state : { ...state, namesCallers: true }
  }
}
