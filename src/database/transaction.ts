import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { commitWithoutWarning, UncertainCommitError } from './commit-warnings.ts'
import { CopyOut } from './copy-out.ts'
import { DatabaseUnavailableError, isRefusal, isUnavailable, wasRefused } from './failures.ts'
import type { StatementRunner } from './pool.ts'

/** How long to wait for the server, in milliseconds. */
const CONNECT_LIMIT = 10_000

/** How long to try to learn the outcome of a COMMIT whose connection was lost, and how often, in milliseconds. */
const OUTCOME_TIMEOUT_MS = 20_000
const OUTCOME_INTERVAL_MS = 250
const OUTCOME_ANSWER_MS = 5000

/** How long a session may leave its transaction idle, for it not to hold locks for a program that hangs. */
const LIMIT_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '60s'"

/** For a lock on a row or a table, which someone's open transaction may hold. */
const LIMIT_LOCKS = "SET LOCAL lock_timeout = '30s'"

export interface TransactionOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Whether everything is read from one snapshot, and nothing changed. */
  readonly readOnly: boolean
  /** Ends the transaction without a change, the statement under way included, and rejects with its reason. */
  readonly signal: AbortSignal
  /** Called before COMMIT is sent. From then on the signal has no effect, as nothing can be undone. */
  readonly onCommit?: () => void
  /** How long PostgreSQL may take to answer a statement, in milliseconds; by default without a limit. */
  readonly answerTimeoutMs?: number
  /** How long to try to learn the outcome of a COMMIT whose connection was lost, in milliseconds. */
  readonly outcomeTimeoutMs?: number
}

/**
 * The connection was lost during COMMIT, and PostgreSQL cannot say whether the transaction was committed; or it committed
 * with a warning, so that the change may be lost or come later.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = 'OutcomeUnknownError'

  constructor(cause: unknown) {
    super('The outcome of the transaction is unknown', { cause })
  }
}

/** What can be done in a transaction. */
export interface Transaction extends StatementRunner {
  /** Runs a statement and returns how many rows it has changed. */
  change(text: string): Promise<number>
  /** Waits, for as long as it takes, until no other transaction has taken the same turn; it ends with this one. */
  takeTurn(lock: number): Promise<void>
  /** Runs `work`, which may leave the transaction idle for up to `limitMs`, with its locks held. */
  pauseFor<Result>(limitMs: number, work: () => Promise<Result>): Promise<Result>
  /** Runs a `COPY … FROM STDIN`; what is written goes into the table, and is there when the stream has finished. */
  copyIn(text: string): Writable
  /** Runs a `COPY … TO STDOUT`. */
  copyOut(text: string): Readable
}

/**
 * Runs `work` in one transaction on a connection of its own, for as long as it takes: only the wait for a lock is
 * limited. What `work` has changed is committed when its promise resolves; if it rejects, nothing has changed. A COMMIT
 * whose connection was lost counts as what PostgreSQL says of it on a new connection (pg_xact_status).
 *
 * @throws {DatabaseUnavailableError} when there is no connection or the server cannot serve now; nothing has changed
 * @throws {OutcomeUnknownError} when the connection was lost during COMMIT and PostgreSQL does not say what became of it,
 *   or when a warning came with the commit
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
    // Before the transaction: the first query of a read-only one takes the snapshot, which belongs to `work`.
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : 'BEGIN')
    await client.query(`${LIMIT_LOCKS}; SET LOCAL statement_timeout = 0; ${LIMIT_IDLE}`)
    const result = await cancelledBy(signal, url, rows[0]?.pid, () => work(transactionOf(client)))
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
    // What the work itself raises, as for a faulty file, is no failure of the database.
    if (error instanceof OutcomeUnknownError) throw error
    if (lost !== undefined) throw new DatabaseUnavailableError(lost)
    throw error instanceof pg.DatabaseError && isUnavailable(error)
      ? new DatabaseUnavailableError(error)
      : error
  } finally {
    // Ends what is not committed.
    await client.end()
  }
}

/** What a transaction is known by on another connection. */
interface Identity {
  readonly xid: string
  readonly history: string
}

/**
 * A text that stays the same until the server crashes, or another one is promoted in its place: after either, the number
 * of a lost transaction may belong to another one. A promotion changes the timeline, a crash resets the statistics.
 */
const HISTORY =
  'left(pg_walfile_name(pg_current_wal_lsn()), 8) || (SELECT stats_reset FROM pg_stat_bgwriter)::text'

/** The identity of the transaction; undefined where the server does not say, or nothing was written. */
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

/** @throws {OutcomeUnknownError} */
async function commit(
  client: pg.Client,
  identity: Identity | undefined,
  { url, outcomeTimeoutMs = OUTCOME_TIMEOUT_MS }: TransactionOptions,
): Promise<void> {
  let answer: pg.QueryResult
  try {
    answer = await commitWithoutWarning(client)
  } catch (error) {
    if (error instanceof UncertainCommitError) throw new OutcomeUnknownError(error)
    if (wasRefused(error)) throw error
    if (identity === undefined) throw new OutcomeUnknownError(error)
    if (await wasCommitted(url, identity, outcomeTimeoutMs)) return
    throw new DatabaseUnavailableError(error)
  }
  // PostgreSQL answers so where a statement of the transaction has failed.
  if (answer.command === 'ROLLBACK') throw new Error('PostgreSQL has rolled the transaction back')
}

/** Asks for the outcome of a transaction, and repeats the question while PostgreSQL does not know it. */
async function wasCommitted(url: string, identity: Identity, timeoutMs: number): Promise<boolean> {
  const end = performance.now() + timeoutMs
  for (;;) {
    try {
      const status = await statusOf(url, identity)
      if (status === 'committed') return true
      if (status === 'aborted') return false
      // A backend that waits for a synchronous standby is in progress.
      if (performance.now() > end) throw new Error(`PostgreSQL reports that it is ${status ?? 'too old'}`)
    } catch (error) {
      if (error instanceof OutcomeUnknownError) throw error
      if (isRefusal(error) || performance.now() > end) throw new OutcomeUnknownError(error)
    }
    await sleep(OUTCOME_INTERVAL_MS)
  }
}

async function statusOf(url: string, { xid, history }: Identity): Promise<string | null | undefined> {
  const client = newClient(url, OUTCOME_ANSWER_MS)
  try {
    await client.connect()
    const { rows } = await client.query<{ status: string | null; history: string }>(
      `SELECT pg_xact_status($1::text::xid8) AS status, ${HISTORY} AS history`,
      [xid],
    )
    const [found] = rows
    if (found?.history !== history) {
      throw new OutcomeUnknownError(new Error('The server has crashed, or another one has taken its place'))
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
    connectionTimeoutMillis: CONNECT_LIMIT,
    keepAlive: true,
  })
  // A connection that breaks between two statements fails the next one; without a listener it would end the process.
  client.on('error', () => {})
  return client
}

function transactionOf(client: pg.Client): Transaction {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
    async takeTurn(lock) {
      await client.query('SET LOCAL lock_timeout = 0')
      await client.query('SELECT pg_advisory_xact_lock($1)', [lock])
      await client.query(LIMIT_LOCKS)
    },
    async pauseFor(limitMs, work) {
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
 * Runs `work`, and has the server cancel the statement under way when the signal comes: one that runs for minutes
 * would hold its locks until it ends, whether or not anyone still waits for it.
 */
async function cancelledBy<Result>(
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
      // A server that cannot be asked to cancel the statement fails it as well.
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
