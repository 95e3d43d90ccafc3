import type { StatementRunner } from '../../database/database.ts'
import { HAS_CITUS } from '../../database/server/server-status.ts'

/** How long it may take until it is noticed that the table was distributed, or is no longer. */
const CHECK_MS = 60_000

/**
 * Whether Citus distributes the table over several servers. If so, each update is a statement of its own, on as many connections
 * as there are: Citus passes it on to the one server with the entry, which commits it. A statement for entries on several servers
 * costs work on every shard and a commit in two phases. It is correct as well, so nothing waits for the check.
 */
export class Distribution {
  isDistributed = false
  readonly #database: StatementRunner
  #nextCheck = 0

  constructor(database: StatementRunner) {
    this.#database = database
  }

  /** Has the database asked, at most once a minute. Call it with each statement. */
  check(): void {
    const now = performance.now()
    if (now < this.#nextCheck) return
    this.#nextCheck = now + CHECK_MS
    isDistributed(this.#database).then(
      (isDistributed) => {
        this.isDistributed = isDistributed
      },
      () => {},
    )
  }
}

/** Returns whether the rows of the table are on several servers. Reference tables and local ones are not distributed. */
async function isDistributed(database: StatementRunner): Promise<boolean> {
  if ((await database.query(`SELECT WHERE ${HAS_CITUS}`)).length === 0) return false
  const distributed = `SELECT FROM pg_dist_partition WHERE logicalrelid = 'inventory'::regclass AND partmethod <> 'n'`
  return (await database.query(distributed)).length > 0
}
