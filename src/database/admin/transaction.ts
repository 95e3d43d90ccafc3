import type { Readable, Writable } from 'node:stream'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { mayBeCommittedElsewhere } from '../causes.ts'
import { DatabaseConnection } from '../database-connection.ts'
import { directSession, HAS_SETTINGS, sessionConfig } from '../session.ts'
import { hasReason, StatementError, toStatementError } from '../statement-error.ts'
import { watchingLocks } from './lock-waits.ts'

/** Only the wait for a lock and idle time are limited. */
const LIMITS = { connect: 10_000, lock: 30_000, statement: 0, answer: 0 }

/** Settings that not every server has. With the first, PostgreSQL ends a statement, and its locks, soon after the connection closes. */
const SETTINGS_OF_SOME_SERVERS = `SELECT set_config(name, value, false) FROM pg_settings
  JOIN (VALUES ('client_connection_check_interval', '200ms'), ('transaction_timeout', '0')) AS wanted (name, value) USING (name)`

export interface TransactionOptions {
  readonly url: string
  /** Whether the transaction changes nothing, and reads everything from one snapshot. */
  readonly readOnly?: boolean
  /** Further settings of the session. */
  readonly settings?: Readonly<Record<string, string>>
  /**
   * Resets the connection, which rolls the transaction back, and rejects the promise with the signal's reason. From the commit on, the
   * outcome is unknown, but a COMMIT that has not arrived never does.
   */
  readonly signal?: AbortSignal
  /** Called when COMMIT is sent. */
  readonly onCommit?: (commit: Promise<void>) => void
  /** Called when the transaction waits for a lock; see `watchingLocks`. */
  readonly onWait?: (description: string) => void
}

/**
 * Runs `work` in one transaction on a connection of its own: commits it when `work` resolves, and rolls it back when it rejects. A
 * connection pooler, which would lose the settings of the session, is refused.
 *
 * @throws {StatementError} if a statement has failed. The outcome is `unknown` if the connection was lost during COMMIT, or if PostgreSQL
 *   warned about the commit; with any other one, nothing has changed
 */
export async function inTransaction<Result>(
  { url, readOnly = false, settings, signal, onCommit, onWait }: TransactionOptions,
  work: (transaction: Transaction, client: DatabaseConnection) => Promise<Result>,
): Promise<Result> {
  // A program that hangs must not hold locks forever.
  const { options } = directSession(LIMITS, { idle_in_transaction_session_timeout: '60s', ...settings })
  const config = sessionConfig(url, options, 'cli')
  const client = new DatabaseConnection({ ...config, connectionTimeoutMillis: LIMITS.connect })
  let isCommitting = false
  const onAbort = (): void => client.cut()
  const workAndCommit = async (): Promise<Result> => {
    const result = await work(createTransaction(client), client)
    // Waits until the server is ready: it reports an error before the state of the transaction.
    await client.query('')
    if (client.getTransactionStatus() === 'E') throw new Error('PostgreSQL has rolled back the transaction')
    signal?.throwIfAborted()
    // If the transaction has ended already, the changes may be committed.
    isCommitting = !readOnly
    client.expectState('T', readOnly ? 'rolledBack' : 'unknown')
    if (readOnly) return result
    const commit = client.query('COMMIT').then(() => client.expectCommit())
    onCommit?.(commit)
    await commit
    return result
  }
  signal?.addEventListener('abort', onAbort)
  try {
    signal?.throwIfAborted()
    await client.connect().catch((error: unknown) => {
      throw new StatementError(error, 'notSent')
    })
    const text = `SELECT pg_backend_pid() AS pid WHERE ${HAS_SETTINGS}`
    const [session] = (await client.query<{ pid: number }>(text)).rows
    if (session === undefined)
      throw new StatementError(
        new Error('the settings of the session did not take effect'),
        'notSent',
        'settings',
      )
    await client.query(SETTINGS_OF_SOME_SERVERS).catch((error: unknown) => {
      if (!(error instanceof pg.DatabaseError)) throw error
    })
    client.expectState('I', 'notSent')
    await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : 'BEGIN')
    client.expectState('T', 'notSent')
    if (onWait === undefined) return await workAndCommit()
    return await watchingLocks(url, session.pid, onWait, workAndCommit)
  } catch (error) {
    // PostgreSQL waits until a COPY that nobody reads any more is read.
    if (readOnly) client.cut()
    if (signal?.aborted && !isCommitting) throw signal.reason
    const isUnknown = isCommitting && (mayBeCommittedElsewhere(error) || !(await client.hasRolledBack(error)))
    const failure = toStatementError(error, isUnknown ? 'unknown' : 'rolledBack')
    // Another error than one of the database or its connection is one of `work`.
    throw !isUnknown && hasReason(failure, 'other') ? error : failure
  } finally {
    signal?.removeEventListener('abort', onAbort)
    await client.end()
  }
}

export type Transaction = ReturnType<typeof createTransaction>

/** Runs statements on a connection, in the transaction that it is in. */
export function createTransaction(client: pg.Client) {
  return {
    async query<Row extends pg.QueryResultRow>(
      text: string,
      values: readonly unknown[] = [],
    ): Promise<Row[]> {
      return (await client.query<Row>(text, [...values])).rows
    },
    /** Takes an advisory lock until the end of the transaction, and waits for it without a time limit. */
    async takeAdvisoryLock(key: number): Promise<void> {
      const lock = `SELECT pg_advisory_xact_lock(${key})`
      await client.query(`SET LOCAL lock_timeout = 0; ${lock}; SET LOCAL lock_timeout TO DEFAULT`)
    },
    /** Runs a statement and returns how many rows it changed. */
    change: async (text: string): Promise<number> => (await client.query(text)).rowCount ?? 0,
    /** Runs a `COPY … FROM STDIN`. The rows written to the stream are in the table when the stream has finished. */
    copyIn: (text: string): Writable => client.query(copyFrom(text)),
    /** Runs a `COPY … TO STDOUT`. */
    copyOut: (text: string): Readable => client.query(copyTo(text)),
  }
}
