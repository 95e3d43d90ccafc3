import type { Readable, Writable } from 'node:stream'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { CommitWatch } from './commit-warnings.ts'
import { hasCause, isUnavailable, wasRefused } from './error-meaning.ts'
import { DatabaseUnavailableError, OutcomeUnknownError } from './errors.ts'

/**
 * With a higher level, which the role or the database may have as its default, a statement that has waited for another
 * transaction would fail, or would not see what that transaction has added.
 */
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED'

/** Limits the wait for a lock on a row or a table, which another open transaction may hold. */
const LIMIT_LOCKS = "SET LOCAL lock_timeout = '30s'"

const SETTINGS = [
  LIMIT_LOCKS,
  'SET LOCAL statement_timeout = 0',
  // A program that hangs must not hold locks forever.
  "SET LOCAL idle_in_transaction_session_timeout = '60s'",
  // Otherwise, the role could suppress PostgreSQL's warning about the commit.
  'SET LOCAL client_min_messages = warning',
  // Otherwise, a policy could hide rows without an error.
  'SET LOCAL row_security = off',
].join('; ')

/**
 * Settings that not every server has. The first makes PostgreSQL end a statement soon after the connection is closed. Otherwise, one
 * that takes minutes would hold its locks until it ends.
 */
const SETTINGS_OF_SOME_SERVERS = `SELECT set_config(name, value, false) FROM pg_settings
  JOIN (VALUES ('client_connection_check_interval', '200ms'), ('transaction_timeout', '0')) AS wanted (name, value) USING (name)`

const CONNECT_TIMEOUT_MS = 10_000

export interface TransactionOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Whether the transaction changes nothing, and reads everything from one snapshot. */
  readonly readOnly: boolean
  /**
   * Closes the connection, so that PostgreSQL ends the running statement and rolls the transaction back. The promise rejects
   * with the signal's reason.
   */
  readonly signal?: AbortSignal
  /** Called when COMMIT is sent. From then on the signal has no effect, because the transaction can no longer be undone. */
  readonly onCommit?: (commit: Promise<void>) => void
}

/**
 * Runs `work` in one transaction on a connection of its own. Only waiting for a lock and idle time are limited. The
 * transaction is committed when `work` resolves, and rolled back when it rejects.
 *
 * @throws {DatabaseUnavailableError} if the server cannot be reached or cannot serve now; nothing has changed
 * @throws {OutcomeUnknownError} if the connection was lost during COMMIT, or if PostgreSQL warned about the commit
 */
export async function inTransaction<Result>(
  { url, readOnly, signal = new AbortController().signal, onCommit }: TransactionOptions,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
  })
  // Without a listener, an error between two statements would end the process.
  client.on('error', () => {})
  const close = (): unknown => client.connection.stream.destroy()
  signal.addEventListener('abort', close, { once: true })
  let isCommitting = false
  try {
    signal.throwIfAborted()
    await client.connect().catch((error: unknown) => {
      throw new DatabaseUnavailableError(error)
    })
    await begin(client, readOnly)
    signal.throwIfAborted()
    const result = await work(transactionOf(client))
    if (readOnly) return result
    signal.throwIfAborted()
    signal.removeEventListener('abort', close)
    isCommitting = true
    const commit = sendCommit(client)
    onCommit?.(commit)
    await commit
    return result
  } catch (error) {
    // PostgreSQL waits until a COPY that nobody reads any more is read.
    if (readOnly) close()
    if (signal.aborted && !isCommitting) throw signal.reason
    if (error instanceof OutcomeUnknownError || error instanceof DatabaseUnavailableError) throw error
    // Any other error without SQLSTATE may be one of `work`.
    const isOutage = isUnavailable(error) && !hasCause(error, 'other')
    throw isOutage ? new DatabaseUnavailableError(error) : error
  } finally {
    // Rolls back a transaction that was not committed.
    await client.end()
    signal.removeEventListener('abort', close)
  }
}

async function begin(client: pg.Client, readOnly: boolean): Promise<void> {
  // Sent before BEGIN: the first query of a read-only transaction takes the snapshot, and its user decides when.
  await client.query(SETTINGS_OF_SOME_SERVERS).catch((error: unknown) => {
    if (!(error instanceof pg.DatabaseError)) throw error
  })
  await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : BEGIN)
  await client.query(SETTINGS)
}

async function sendCommit(client: pg.Client): Promise<void> {
  const watch = new CommitWatch(client)
  watch.begin(true)
  let command: string
  try {
    command = (await client.query('COMMIT')).command
    watch.check()
  } catch (error) {
    throw wasRefused(error) ? error : new OutcomeUnknownError(error)
  }
  // This is PostgreSQL's response to COMMIT if a statement of the transaction has failed.
  if (command === 'ROLLBACK') throw new Error('PostgreSQL has rolled back the transaction')
}

/** Runs statements in a transaction. */
export type Transaction = ReturnType<typeof transactionOf>

function transactionOf(client: pg.Client) {
  return {
    async query<Row extends pg.QueryResultRow>(
      text: string,
      values: readonly unknown[] = [],
    ): Promise<Row[]> {
      return (await client.query<Row>(text, [...values])).rows
    },
    /** Takes an advisory lock, and waits for it without a time limit. The end of the transaction releases it. */
    async takeAdvisoryLock(key: number): Promise<void> {
      await client.query('SET LOCAL lock_timeout = 0')
      await client.query('SELECT pg_advisory_xact_lock($1)', [key])
      await client.query(LIMIT_LOCKS)
    },
    /** Runs a statement and returns the number of rows that it changed. */
    change: async (text: string): Promise<number> => (await client.query(text)).rowCount ?? 0,
    /** Runs a `COPY … FROM STDIN`. The rows written to the stream are in the table when the stream has finished. */
    copyIn: (text: string): Writable => client.query(copyFrom(text)),
    /** Runs a `COPY … TO STDOUT`. */
    copyOut: (text: string): Readable => client.query(copyTo(text)),
  }
}
