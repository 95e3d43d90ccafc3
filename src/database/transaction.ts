import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { commitWithoutWarning, UncertainCommitError } from './commit-warnings.ts'
import { CopyOut } from './copy-out.ts'
import { DatabaseUnavailableError, isRefusal, isUnavailable, wasRefused } from './failures.ts'
import type { StatementRunner } from './pool.ts'

const CONNECT_TIMEOUT_MS = 10_000

/**
 * How long to keep asking for the outcome of a COMMIT whose connection was lost, the pause between two attempts, and the time
 * limit of each attempt.
 */
const OUTCOME_TIMEOUT_MS = 20_000
const OUTCOME_INTERVAL_MS = 250
const OUTCOME_ANSWER_TIMEOUT_MS = 5000

/** Limits how long the transaction may be idle, so that a program that hangs does not hold locks forever. */
const LIMIT_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '60s'"

/** Limits the wait for a lock on a row or a table, which another open transaction may hold. */
const LIMIT_LOCKS = "SET LOCAL lock_timeout = '30s'"

export interface TransactionOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Whether the transaction changes nothing, and reads everything from one snapshot. */
  readonly readOnly: boolean
  /** Cancels the running statement and rolls the transaction back. The promise rejects with the signal's reason. */
  readonly signal: AbortSignal
  /** Called before COMMIT is sent. From then on the signal has no effect, because the transaction can no longer be undone. */
  readonly onCommit?: () => void
  /** How long PostgreSQL may take to respond to a statement, in milliseconds. There is no limit by default. */
  readonly answerTimeoutMs?: number
  /** How long to keep asking for the outcome of a COMMIT whose connection was lost, in milliseconds. */
  readonly outcomeTimeoutMs?: number
}

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

/** Runs statements in a transaction. */
export interface Transaction extends StatementRunner {
  /** Runs a statement and returns the number of rows that it changed. */
  change(text: string): Promise<number>
  /** Takes an advisory lock, and waits for it without a time limit. The end of the transaction releases it. */
  takeAdvisoryLock(key: number): Promise<void>
  /** Runs `work`, during which the transaction may be idle for up to `limitMs`. It keeps its locks meanwhile. */
  allowIdle<Result>(limitMs: number, work: () => Promise<Result>): Promise<Result>
  /** Runs a `COPY … FROM STDIN`. The rows written to the stream are in the table when the stream has finished. */
  copyIn(text: string): Writable
  /** Runs a `COPY … TO STDOUT`. */
  copyOut(text: string): Readable
}

/**
 * Runs `work` in one transaction on a connection of its own. Only waiting for a lock and idle time are limited. The
 * transaction is committed when `work` resolves, and rolled back when it rejects. If the connection is lost during COMMIT, a
 * new connection asks PostgreSQL for the outcome (pg_xact_status).
 *
 * @throws {DatabaseUnavailableError} if the server cannot be reached or cannot serve now; nothing has changed
 * @throws {OutcomeUnknownError} if the connection was lost during COMMIT and PostgreSQL cannot say whether the transaction was
 *   committed, or if PostgreSQL warned about the commit
 */
export async function inTransaction<Result>(
  options: TransactionOptions,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  const { url, readOnly, signal, onCommit, answerTimeoutMs } = options
  const client = newClient(url, answerTimeoutMs)
  let lost: Error | undefined
  client.on('error', (error) => {
    lost = error
  })
  try {
    await client.connect()
  } catch (error) {
    throw new DatabaseUnavailableError(error)
  }
  let isCommitting = false
  try {
    // Sent before BEGIN: the first query of a read-only transaction takes the snapshot, and `work` decides when.
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : 'BEGIN')
    await client.query(`${LIMIT_LOCKS}; SET LOCAL statement_timeout = 0; ${LIMIT_IDLE}`)
    const result = await withCancellation(signal, url, rows[0]?.pid, () => work(transactionOf(client)))
    if (!readOnly) {
      const identity = await identityOf(client)
      signal.throwIfAborted()
      isCommitting = true
      onCommit?.()
      await commit(client, identity, options)
    }
    return result
  } catch (error) {
    if (signal.aborted && !isCommitting) throw signal.reason
    if (error instanceof OutcomeUnknownError) throw error
    if (lost !== undefined) throw new DatabaseUnavailableError(lost)
    // Errors that `work` throws itself, such as for an invalid file, are not failures of the database.
    throw error instanceof pg.DatabaseError && isUnavailable(error)
      ? new DatabaseUnavailableError(error)
      : error
  } finally {
    // Rolls back a transaction that was not committed.
    await client.end()
  }
}

/** Identifies a transaction on another connection. */
interface Identity {
  readonly xid: string
  readonly history: string
}

/**
 * SQL expression of a text that stays the same until the server crashes or another server is promoted. After either, the ID
 * of a lost transaction may be reused for another one. A promotion changes the timeline, and a crash resets the statistics.
 */
const HISTORY =
  'left(pg_walfile_name(pg_current_wal_lsn()), 8) || (SELECT stats_reset FROM pg_stat_bgwriter)::text'

/** Returns the identity of the current transaction; undefined if the server rejects the query or nothing was written. */
async function identityOf(client: pg.Client): Promise<Identity | undefined> {
  await client.query('SAVEPOINT identity')
  try {
    const { rows } = await client.query<Identity>(
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
 * Commits the transaction.
 *
 * @throws {DatabaseUnavailableError} if the connection was lost and the transaction was rolled back
 * @throws {OutcomeUnknownError} if PostgreSQL cannot say whether it was committed, or warned about the commit
 */
async function commit(
  client: pg.Client,
  identity: Identity | undefined,
  { url, outcomeTimeoutMs = OUTCOME_TIMEOUT_MS }: TransactionOptions,
): Promise<void> {
  let result: pg.QueryResult
  try {
    result = await commitWithoutWarning(client)
  } catch (error) {
    if (error instanceof UncertainCommitError) throw new OutcomeUnknownError(error)
    if (wasRefused(error)) throw error
    if (identity === undefined) throw new OutcomeUnknownError(error)
    if (await wasCommitted(url, identity, outcomeTimeoutMs)) return
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
async function wasCommitted(url: string, identity: Identity, timeoutMs: number): Promise<boolean> {
  const end = performance.now() + timeoutMs
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
async function statusOf(url: string, { xid, history }: Identity): Promise<string | null | undefined> {
  const client = newClient(url, OUTCOME_ANSWER_TIMEOUT_MS)
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

function newClient(url: string, answerTimeoutMs?: number): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    ...(answerTimeoutMs === undefined ? {} : { query_timeout: answerTimeoutMs }),
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
  })
  // If the connection breaks between two statements, the next one fails. Without a listener, the process would exit.
  client.on('error', () => {})
  return client
}

function transactionOf(client: pg.Client): Transaction {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
    async takeAdvisoryLock(key) {
      await client.query('SET LOCAL lock_timeout = 0')
      await client.query('SELECT pg_advisory_xact_lock($1)', [key])
      await client.query(LIMIT_LOCKS)
    },
    async allowIdle(limitMs, work) {
      await client.query(`SET LOCAL idle_in_transaction_session_timeout = ${limitMs}`)
      const result = await work()
      await client.query(LIMIT_IDLE)
      return result
    },
    change: async (text) => (await client.query(text)).rowCount ?? 0,
    copyIn: (text) => client.query(copyFrom(text)),
    copyOut: (text) => client.query(new CopyOut(text)),
  }
}

/**
 * Runs `work`, and cancels its running statement on the server when the signal is aborted. Otherwise a statement that takes
 * minutes would hold its locks until it ends, although no caller waits for it.
 */
async function withCancellation<Result>(
  signal: AbortSignal,
  url: string,
  pid: number | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const cancel = async (): Promise<void> => {
    const other = newClient(url)
    try {
      await other.connect()
      await other.query('SELECT pg_cancel_backend($1)', [pid])
    } catch {
      // If the server cannot be reached, the statement fails anyway.
    } finally {
      await other.end()
    }
  }
  signal.addEventListener('abort', cancel, { once: true })
  try {
    signal.throwIfAborted()
    return await work()
  } finally {
    signal.removeEventListener('abort', cancel)
  }
}
