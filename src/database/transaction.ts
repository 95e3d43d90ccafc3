import type { Readable, Writable } from 'node:stream'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { CopyOut } from './copy-out.ts'
import { DatabaseUnavailableError, isUnavailable } from './failures.ts'

/** How long to wait for the server, in milliseconds. */
const CONNECT_LIMIT = 10_000

/** For a lock on a row or a table, which someone's open transaction may hold. */
const LIMIT_LOCKS = "SET LOCAL lock_timeout = '30s'"

export interface TransactionOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Whether everything is read from one snapshot, and nothing changed. */
  readonly readOnly: boolean
  /** Ends the transaction without a change, the statement under way included, and rejects with its reason. */
  readonly signal: AbortSignal
}

/** What can be done in a transaction. */
export interface Transaction {
  /** Runs a statement and returns its rows. */
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
  /** Runs a statement and returns how many rows it has changed. */
  change(text: string): Promise<number>
  /** Waits, for as long as it takes, until no other transaction has taken the same turn; it ends with this one. */
  takeTurn(lock: number): Promise<void>
  /** Runs a `COPY … FROM STDIN`; what is written goes into the table, and is there when the stream has finished. */
  copyIn(text: string): Writable
  /** Runs a `COPY … TO STDOUT`. */
  copyOut(text: string): Readable
}

/**
 * Runs `work` in one transaction on a connection of its own, for as long as it takes: only the wait for a lock is
 * limited. What `work` has changed is committed when its promise resolves; if it rejects, nothing has changed.
 *
 * @throws {DatabaseUnavailableError} when there is no connection or the server cannot serve now
 */
export async function inTransaction<Result>(
  { url, readOnly, signal }: TransactionOptions,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  const client = newClient(url)
  let lost: Error | undefined
  client.on('error', (error) => {
    lost = error
  })
  try {
    await client.connect()
  } catch (error) {
    throw new DatabaseUnavailableError(error)
  }
  try {
    await client.query(readOnly ? 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' : 'BEGIN')
    await client.query(
      `${LIMIT_LOCKS}; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '60s'`,
    )
    const result = await cancelledBy(signal, url, client, () => work(transactionOf(client)))
    signal.throwIfAborted()
    await client.query('COMMIT')
    return result
  } catch (error) {
    if (signal.aborted) throw signal.reason
    // What the work itself raises, as for a faulty file, is no failure of the database.
    if (lost !== undefined) throw new DatabaseUnavailableError(lost)
    throw error instanceof pg.DatabaseError && isUnavailable(error)
      ? new DatabaseUnavailableError(error)
      : error
  } finally {
    // Ends what is not committed.
    await client.end()
  }
}

function newClient(url: string): pg.Client {
  const client = new pg.Client({
    connectionString: url,
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
  client: pg.Client,
  work: () => Promise<Result>,
): Promise<Result> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  const cancel = async (): Promise<void> => {
    const other = newClient(url)
    try {
      await other.connect()
      await other.query('SELECT pg_cancel_backend($1)', [rows[0]?.pid])
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
