import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { DatabaseUnavailableError } from '../errors/errors.ts'
import { isRefusal, wasRefused } from '../errors/failures.ts'
import { commitWithoutWarning, UncertainCommitError } from '../protocol/commit-warnings.ts'
import { TIMELINE } from '../server/session-server.ts'
import { operatorClient } from './operator-client.ts'

/**
 * How long to keep asking for the outcome of a COMMIT whose connection was lost, the pause between two attempts, and the time
 * limit of each attempt.
 */
const OUTCOME_TIMEOUT_MS = 20_000
const OUTCOME_INTERVAL_MS = 250
const OUTCOME_ANSWER_TIMEOUT_MS = 5000

/**
 * The connection was lost during COMMIT and PostgreSQL cannot say whether the transaction was committed, or PostgreSQL warned
 * about the commit, so that the change may be lost or take effect later.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = 'OutcomeUnknownError'

  constructor(cause: unknown) {
    super('The outcome of the transaction is unknown', { cause })
  }
}

/** Identifies a transaction on another connection. */
export interface TransactionIdentity {
  readonly xid: string
  readonly history: string
}

/**
 * SQL expression of a text that stays the same until the server crashes or another server is promoted. After either, the ID
 * of a lost transaction may be reused for another one. A promotion changes the timeline, and a crash resets the statistics.
 */
const HISTORY = `${TIMELINE} || (SELECT stats_reset FROM pg_stat_bgwriter)::text`

/** Returns the identity of the current transaction; undefined if the server rejects the query or nothing was written. */
export async function identityOf(client: pg.Client): Promise<TransactionIdentity | undefined> {
  await client.query('SAVEPOINT identity')
  try {
    const { rows } = await client.query<TransactionIdentity>(
      `SELECT xid, history FROM (SELECT pg_current_xact_id_if_assigned()::text AS xid, ${HISTORY} AS history) AS identity
       WHERE xid IS NOT NULL AND history IS NOT NULL`,
    )
    return rows[0]
  } catch (error) {
    if (!(error instanceof pg.DatabaseError)) throw error
    await client.query('ROLLBACK TO identity')
    return undefined
  }
}

/**
 * Commits the transaction. If the connection is lost meanwhile, a new one asks PostgreSQL for the outcome (pg_xact_status).
 *
 * @param url where to ask
 * @throws {DatabaseUnavailableError} if the connection was lost and the transaction was rolled back
 * @throws {OutcomeUnknownError} if PostgreSQL cannot say whether it was committed, or warned about the commit
 */
export async function commit(
  client: pg.Client,
  identity: TransactionIdentity | undefined,
  url: string,
): Promise<void> {
  let result: pg.QueryResult
  try {
    result = await commitWithoutWarning(client)
  } catch (error) {
    if (error instanceof UncertainCommitError) throw new OutcomeUnknownError(error)
    if (wasRefused(error)) throw error
    if (identity === undefined) throw new OutcomeUnknownError(error)
    if (await wasCommitted(url, identity)) return
    throw new DatabaseUnavailableError(error)
  }
  // This is PostgreSQL's response to COMMIT if a statement of the transaction has failed.
  if (result.command === 'ROLLBACK') throw new Error('PostgreSQL has rolled back the transaction')
}

/**
 * Returns whether a transaction was committed. Asks until PostgreSQL knows the outcome.
 *
 * @throws {OutcomeUnknownError} if PostgreSQL does not know it in time, or has crashed or been replaced
 */
async function wasCommitted(url: string, identity: TransactionIdentity): Promise<boolean> {
  const end = performance.now() + OUTCOME_TIMEOUT_MS
  for (;;) {
    try {
      const status = await statusOf(url, identity)
      if (status === 'committed') return true
      if (status === 'aborted') return false
      // A transaction whose commit waits for a synchronous standby is still in progress.
      if (performance.now() > end) throw new Error(`PostgreSQL reports that it is ${status ?? 'too old'}`)
    } catch (error) {
      if (error instanceof OutcomeUnknownError) throw error
      if (isRefusal(error) || performance.now() > end) throw new OutcomeUnknownError(error)
    }
    await sleep(OUTCOME_INTERVAL_MS)
  }
}

/** Returns `in progress`, `committed` or `aborted`; null if the transaction is too old for PostgreSQL to know. */
async function statusOf(
  url: string,
  { xid, history }: TransactionIdentity,
): Promise<string | null | undefined> {
  const client = operatorClient(url, { query_timeout: OUTCOME_ANSWER_TIMEOUT_MS })
  try {
    await client.connect()
    const { rows } = await client.query<{ status: string | null; history: string }>(
      `SELECT pg_xact_status($1::text::xid8) AS status, ${HISTORY} AS history`,
      [xid],
    )
    const [found] = rows
    if (found?.history !== history) {
      throw new OutcomeUnknownError(new Error('The server has crashed, or another server has replaced it'))
    }
    return found.status
  } finally {
    await client.end().catch(() => {})
  }
}
