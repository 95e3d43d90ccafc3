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
export const TABLE_STATE = `SELECT coalesce(bool_or(${IS_RECORDING}), false) AS "isRecorded",
    coalesce(bool_or(${IS_DISTRIBUTED}), false) AS "isDistributed", coalesce((${SKIPPING_RULES}), 'none') AS "skippingRules"
  FROM pg_trigger WHERE tgrelid = to_regclass('inventory')`

type State = Pick<TableState, 'isDistributed' | 'skippingRules'> & { readonly isRecorded: boolean }

/** What updates depend on that operators may change while the service runs. No update waits until it is read. */
export class TableState {
  /**
   * Whether Citus may distribute the table over several servers. If so, each update is a statement of its own, on as many
   * connections as there are: Citus passes it on to the one server with the entry, which commits it. A statement for entries on
   * several servers costs work on every shard and a commit in two phases. It is correct as well.
   */
  isDistributed = false
  /** The names of the triggers and rules that may keep a row as it is without an error, separated by commas. */
  skippingRules = ''
  readonly #database: StatementRunner
  #isRecorded = true
  #readAt = Number.NEGATIVE_INFINITY
  #nextRead = Number.NEGATIVE_INFINITY

  constructor(database: StatementRunner) {
    this.#database = database
  }

  /**
   * Whether an update has to name its caller: the history records changes, or did not long ago, or that is not known. A name that
   * nothing records costs time only. Citus distributes no table with triggers, and supports no such statement for one that it
   * distributes.
   */
  get namesCallers(): boolean {
    return this.#isRecorded || (!this.isDistributed && performance.now() - this.#readAt > MAX_AGE_MS)
  }

  /** Reads the state in the background if it is old. Call it for each statement, and once before. */
  refresh(): void {
    const now = performance.now()
    if (now < this.#nextRead) return
    this.#nextRead = Number.POSITIVE_INFINITY
    void this.#read(now).finally(() => {
      this.#nextRead = now + REFRESH_MS
    })
  }

  async #read(startedAt: number): Promise<void> {
    try {
      const { isRecorded, isDistributed, skippingRules } = onlyRow(
        await this.#database.query<State>(TABLE_STATE),
      )
      this.#isRecorded = isRecorded
      this.isDistributed = isDistributed
      this.skippingRules = skippingRules
      this.#readAt = startedAt
    } catch {
      // The readiness check reports why.
    }
  }
}
