import type { StatementRunner } from '../../database/database.ts'
import { HAS_CITUS } from '../../database/server-status.ts'
import { isRecording } from '../history/recording.ts'

/** Age at which the state is read again, while updates go on. */
const REFRESH_MS = 1000

/** Maximum age of the state that a statement depends on. */
export const MAX_AGE_MS = 3000

/** What updates depend on that operators may change while the service runs. */
export class TableState {
  /**
   * Whether Citus distributes the table over several servers. If so, each update is a statement of its own, on as many
   * connections as there are: Citus passes it on to the one server with the entry, which commits it. A statement for entries on
   * several servers costs work on every shard and a commit in two phases. It is correct as well.
   */
  isDistributed = false
  /** Whether the history records changes. If not, a statement need not name its callers. */
  isRecorded = false
  readonly #database: StatementRunner
  #readAt = Number.NEGATIVE_INFINITY
  #reading: Promise<void> | undefined

  constructor(database: StatementRunner) {
    this.#database = database
  }

  /**
   * Reads the state if it is old. Call it before each statement, and wait for the promise, if there is one: the state is too old.
   * If it cannot be read, the former state stays in use.
   */
  refresh(): Promise<void> | undefined {
    const age = performance.now() - this.#readAt
    if (age > REFRESH_MS) this.#reading ??= this.#read()
    return age > MAX_AGE_MS ? this.#reading : undefined
  }

  async #read(): Promise<void> {
    const start = performance.now()
    try {
      this.isRecorded = await isRecording(this.#database)
      this.isDistributed = await isDistributed(this.#database)
    } catch {
      // The readiness check reports why.
    }
    this.#readAt = start
    this.#reading = undefined
  }
}

/** Returns whether the rows of the table are on several servers. Reference tables and local ones are not distributed. */
async function isDistributed(database: StatementRunner): Promise<boolean> {
  if ((await database.query(`SELECT WHERE ${HAS_CITUS}`)).length === 0) return false
  const distributed = `SELECT FROM pg_dist_partition WHERE logicalrelid = 'inventory'::regclass AND partmethod <> 'n'`
  return (await database.query(distributed)).length > 0
}
