import type { StatementRunner } from '../../database/database.ts'
import { onlyRow } from '../../database/only-row.ts'
import { IS_RECORDING } from '../history/recording.ts'

/** Age at which the state is read again, while updates go on. */
const REFRESH_MS = 1000

/** A state that is older says nothing about the history. */
export const MAX_AGE_MS = 2000

/** Citus creates a trigger of this name on each table that it manages: one that it distributes or copies, or a local one. */
const IS_DISTRIBUTED = "tgname LIKE 'truncate\\_trigger\\_%'"

/** The statement that reads the state. */
export const TABLE_STATE = `SELECT coalesce(bool_or(${IS_RECORDING}), false) AS "isRecorded",
    coalesce(bool_or(${IS_DISTRIBUTED}), false) AS "isDistributed"
  FROM pg_trigger WHERE tgrelid = to_regclass('inventory')`

/** What updates depend on that operators may change while the service runs. No update waits until it is read. */
export class TableState {
  /**
   * Whether Citus may distribute the table over several servers. If so, each update is a statement of its own, on as many
   * connections as there are: Citus passes it on to the one server with the entry, which commits it. A statement for entries on
   * several servers costs work on every shard and a commit in two phases. It is correct as well.
   */
  isDistributed = false
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
      const rows = await this.#database.query<{ isRecorded: boolean; isDistributed: boolean }>(TABLE_STATE)
      const { isRecorded, isDistributed } = onlyRow(rows)
      this.#isRecorded = isRecorded
      this.isDistributed = isDistributed
      this.#readAt = startedAt
    } catch {
      // The readiness check reports why.
    }
  }
}
