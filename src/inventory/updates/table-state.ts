import { onlyRow } from '../../database/only-row.ts'
import type { StatementRunner } from '../../database/statement.ts'
import { IS_RECORDING } from '../history/recording.ts'

/** Age at which the state is read again, while updates go on. */
const REFRESH_MS = 1000

/** A state that is older says nothing about the history. */
export const MAX_AGE_MS = 2000

/** Citus creates a trigger of this name on each table that it manages: one that it distributes or copies, or a local one. */
const IS_DISTRIBUTED = "tgname LIKE 'truncate\\_trigger\\_%'"

/** Triggers for each row (1) before (2) or instead of (64) an update (16), as in `pg_trigger.h`, and rules on update (2). */
const SKIPPING_RULES = `SELECT string_agg(name, ', ' ORDER BY name) FROM (
    SELECT tgname FROM pg_trigger
    WHERE tgrelid = to_regclass('inventory') AND tgenabled <> 'D' AND tgtype & 17 = 17 AND tgtype & 66 <> 0
    UNION ALL SELECT rulename FROM pg_rewrite WHERE ev_class = to_regclass('inventory') AND ev_type = '2'
  ) AS rule (name)`

/** The statement that reads the state. */
export const TABLE_STATE = `SELECT coalesce(bool_or(${IS_RECORDING}), false) AS "namesCallers",
    coalesce(bool_or(${IS_DISTRIBUTED}), false) AS "isDistributed", coalesce((${SKIPPING_RULES}), 'unknown') AS "skippingRules"
  FROM pg_trigger WHERE tgrelid = to_regclass('inventory')`

/** What updates depend on that operators may change while the service runs. */
export interface TableState {
  /**
   * Whether Citus may distribute the table over several servers. If so, each update is a statement of its own, on as many
   * connections as there are: Citus passes it on to the one server with the entry, which commits it. A statement for entries on
   * several servers costs work on every shard and a commit in two phases. It is correct as well.
   */
  readonly isDistributed: boolean
  /**
   * Whether an update has to name its caller: the history records changes, or did not long ago, or that is not known. A name that
   * nothing records costs time only. Citus distributes no table with triggers, and supports no such statement for one that it
   * distributes.
   */
  readonly namesCallers: boolean
  /** The names of the triggers and rules that may keep a row as it is without an error, separated by commas. */
  readonly skippingRules: string
}

/**
 * Returns a function that returns the latest state. No update waits until it is read: the function reads it in the background if it is
 * old, also when it is created.
 */
export function tableState(database: StatementRunner): () => TableState {
  let state: TableState = { isDistributed: false, namesCallers: true, skippingRules: 'unknown' }
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
