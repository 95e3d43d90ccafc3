import type pg from 'pg'
import type { StatementRunner } from './database.ts'
import { isFatal } from './failures.ts'
import type { LateStatementError } from './prepared-statement.ts'

/** Interval between the checks whether late statements are still running. */
const CHECK_MS = 60_000

/** Whether statements of this role still run after their time limit. */
const LATE_STATEMENTS = `SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE usename = current_user AND state = 'active'
      AND query_start < clock_timestamp() - interval '5 seconds'
  ) AS "areRunning"`

/** Returns whether statements of this role have been running for longer than the time limit of a statement. */
export async function areLateRunning(database: StatementRunner): Promise<boolean> {
  const [row] = await database.query<{ areRunning: boolean }>(LATE_STATEMENTS)
  return row?.areRunning === true
}

/**
 * Connections whose statement has exceeded its time limit, and whose caller has its error. They stay open and in use until
 * PostgreSQL answers: a commit that waits for a synchronous standby keeps its server process even if the client disconnects,
 * so each new connection would leave another process behind. A statement whose response was lost on the network is never
 * answered. Therefore all are closed if PostgreSQL says that no statement of the role runs for that long.
 */
export class LateConnections {
  readonly #areRunning: () => Promise<boolean>
  readonly #checkMs: number
  readonly #clients = new Set<pg.Client>()
  #timer: NodeJS.Timeout | undefined

  /** @param areRunning returns whether PostgreSQL still runs late statements. If it rejects, nothing is closed. */
  constructor(areRunning: () => Promise<boolean>, checkMs = CHECK_MS) {
    this.#areRunning = areRunning
    this.#checkMs = checkMs
  }

  /** Keeps a connection until its statement is answered or the connection is lost; returns whether it can still be used. */
  async keep(client: pg.Client, { answered }: LateStatementError): Promise<boolean> {
    this.#clients.add(client)
    this.#timer ??= setInterval(() => this.#check(), this.#checkMs).unref()
    const isUsable = await answered.then(
      () => true,
      (error) => !isFatal(error),
    )
    this.#clients.delete(client)
    if (this.#clients.size === 0) {
      clearInterval(this.#timer)
      this.#timer = undefined
    }
    return isUsable
  }

  /** Closes all connections. */
  close(): void {
    for (const client of this.#clients) void client.end()
  }

  #check(): void {
    // A connection that became late after the check began stays open.
    const checked = [...this.#clients]
    this.#areRunning().then(
      (areRunning) => {
        if (areRunning) return
        for (const client of checked) if (this.#clients.has(client)) void client.end()
      },
      () => {},
    )
  }
}
