import type { Readable, Writable } from 'node:stream'
import pg, { type TransactionStatus } from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { ConnectionFault, hasCause, isUnavailable } from '../causes.ts'
import { DatabaseConnection } from '../database-connection.ts'
import { DatabaseUnavailableError, OutcomeUnknownError } from '../outcomes.ts'
import { directSession, HAS_SETTINGS, sessionConfig } from '../session.ts'

/** Only waiting for a lock, which another open transaction may hold, and idle time are limited. */
const LIMITS = { connect: 10_000, lock: 30_000, statement: 0, answer: 0 }

/** A program that hangs must not hold locks forever. */
const SETTINGS = { idle_in_transaction_session_timeout: '60s' }

/**
 * Settings that not every server has. The first makes PostgreSQL end a statement soon after the connection is closed. Otherwise, one
 * that takes minutes would hold its locks until it ends.
 */
const SETTINGS_OF_SOME_SERVERS = `SELECT set_config(name, value, false) FROM pg_settings
  JOIN (VALUES ('client_connection_check_interval', '200ms'), ('transaction_timeout', '0')) AS wanted (name, value) USING (name)`

export interface ConnectionOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Settings of the session, whatever the options in the address are. */
  readonly settings?: Readonly<Record<string, string>>
  /**
   * Closes the connection, so that PostgreSQL ends the running statement and rolls the transaction back. The promise rejects
   * with the signal's reason.
   */
  readonly signal?: AbortSignal
  /** Called when COMMIT is sent. From then on the signal has no effect, because the transaction can no longer be undone. */
  readonly onCommit?: (commit: Promise<void>) => void
}

/**
 * Runs `work` on a connection of its own, on which it may commit one transaction. What it does not commit is rolled back. A
 * connection pooler, which would lose the settings and the locks of the session, is refused.
 *
 * @throws {DatabaseUnavailableError} if the server cannot be reached or cannot serve now; nothing has changed
 * @throws {OutcomeUnknownError} if the connection was lost during COMMIT, or if PostgreSQL warned about the commit
 */
export async function onConnection<Result>(
  { url, settings, signal = new AbortController().signal, onCommit }: ConnectionOptions,
  work: (client: DatabaseConnection) => Promise<Result>,
): Promise<Result> {
  const session = directSession(LIMITS, { ...SETTINGS, ...settings })
  const client = new DatabaseConnection({
    ...sessionConfig(url, session.options, 'cli'),
    connectionTimeoutMillis: LIMITS.connect,
  })
  const cut = (): void => client.cut()
  signal.addEventListener('abort', cut, { once: true })
  let isCommitting = false
  let stateBefore: TransactionStatus = null
  let working: Promise<Result>
  // Seen here, because node-pg-migrate commits its transaction, and does not say when.
  const send = client.connection.query.bind(client.connection)
  client.connection.query = (text) => {
    if (text === 'COMMIT' && !signal.aborted) {
      stateBefore = client.getTransactionStatus()
      // COMMIT rolls a failed transaction back.
      isCommitting = stateBefore !== 'E'
      signal.removeEventListener('abort', cut)
      if (isCommitting) onCommit?.(working.then(() => {}))
    }
    send(text)
  }
  try {
    signal.throwIfAborted()
    await client.connect().catch((error: unknown) => {
      throw new DatabaseUnavailableError(error, 'notSent')
    })
    if ((await client.query(`SELECT WHERE ${HAS_SETTINGS}`)).rowCount === 0)
      throw new ConnectionFault('settings', 'the settings of the session did not take effect')
    await client.query(SETTINGS_OF_SOME_SERVERS).catch((error: unknown) => {
      if (!(error instanceof pg.DatabaseError)) throw error
    })
    client.expectState('I')
    working = work(client)
    const result = await working
    if (stateBefore === 'E') throw new Error('PostgreSQL has rolled back the transaction')
    if (!isCommitting) return result
    client.expectState('T', stateBefore)
    client.expectCommit()
    return result
  } catch (error) {
    if (signal.aborted && !isCommitting) throw signal.reason
    if (error instanceof DatabaseUnavailableError) throw error
    if (isCommitting && !(await client.hasOnlyRefused(error))) throw new OutcomeUnknownError(error)
    // Any other error without SQLSTATE may be one of `work`.
    const isOutage = isUnavailable(error) && !hasCause(error, 'other')
    throw isOutage ? new DatabaseUnavailableError(error, 'refused') : error
  } finally {
    await client.end()
    signal.removeEventListener('abort', cut)
  }
}

/**
 * Runs `work` in one transaction on a connection of its own. The transaction is committed when `work` resolves, and rolled back when
 * it rejects.
 *
 * @param options.readOnly whether the transaction changes nothing, and reads everything from one snapshot
 * @throws what `onConnection` throws
 */
export function inTransaction<Result>(
  { readOnly, ...options }: ConnectionOptions & { readonly readOnly: boolean },
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  return onConnection(options, async (client) => {
    await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : 'BEGIN')
    client.expectState('T')
    try {
      const result = await work(transactionOf(client))
      if (readOnly) client.expectState('T')
      if (readOnly) return result
      options.signal?.throwIfAborted()
      await client.query('COMMIT')
      return result
    } catch (error) {
      // PostgreSQL waits until a COPY that nobody reads any more is read.
      if (readOnly) client.cut()
      throw error
    }
  })
}

/** Runs statements in a transaction. */
export type Transaction = ReturnType<typeof transactionOf>

/** Runs statements on a connection, in the transaction that it is in. */
export function transactionOf(client: pg.Client) {
  return {
    async query<Row extends pg.QueryResultRow>(
      text: string,
      values: readonly unknown[] = [],
    ): Promise<Row[]> {
      return (await client.query<Row>(text, [...values])).rows
    },
    /** Takes an advisory lock, and waits for it without a time limit. The end of the transaction releases it. */
    async takeAdvisoryLock(key: number): Promise<void> {
      const lock = `SELECT pg_advisory_xact_lock(${key})`
      await client.query(`SET LOCAL lock_timeout = 0; ${lock}; SET LOCAL lock_timeout TO DEFAULT`)
    },
    /** Runs a statement and returns the number of rows that it changed. */
    change: async (text: string): Promise<number> => (await client.query(text)).rowCount ?? 0,
    /** Runs a `COPY … FROM STDIN`. The rows written to the stream are in the table when the stream has finished. */
    copyIn: (text: string): Writable => client.query(copyFrom(text)),
    /** Runs a `COPY … TO STDOUT`. */
    copyOut: (text: string): Readable => client.query(copyTo(text)),
  }
}
