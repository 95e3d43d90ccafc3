import pg from 'pg'
import { DatabaseUnavailableError, isFatal, isUnavailable } from './failures.ts'

/**
 * How long anything may wait, in milliseconds. Each limit is above the one it backs up: PostgreSQL ends a
 * statement first and says so; the client gives up only on a server that no longer answers.
 */
export interface TimeLimits {
  /** For a connection: a free one out of the pool, or a new one to the server. */
  readonly connect: number
  /** For a lock, say on a row that someone's open transaction holds. */
  readonly lock: number
  /** For a statement, as PostgreSQL measures it. */
  readonly statement: number
  /** For the answer to a statement, as this process measures it. */
  readonly answer: number
}

/** The longest that one statement can take is `connect` + `answer`. */
export const requestLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 5000, answer: 6000 }

/** For a readiness check, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 1000 }

export interface DatabaseOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** The most connections that this pool opens. */
  readonly size: number
  readonly limits: TimeLimits
  /** Told why, when a connection that nobody is waiting on is lost. The pool replaces it by itself. */
  readonly onConnectionLost: (reason: string) => void
}

/** A pool of connections to PostgreSQL. Nothing else in the service speaks to `pg`. */
export interface Database {
  /**
   * Runs one statement and returns its rows; `bigint` columns arrive as BigInt.
   *
   * @throws {DatabaseUnavailableError} when there is no connection, no answer in time, or the server cannot serve now
   * @throws {pg.DatabaseError} when PostgreSQL refuses the statement itself
   */
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>

  /** Waits for the statements on their way, then closes every connection. */
  close(): Promise<void>
}

const INT8_OID = 20

// Of this pool alone: pg.types.setTypeParser would change every pool of the process.
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/** Opens a pool. It connects when it first has to, so a database that is away now is no error here. */
export function openDatabase({ url, size, limits, onConnectionLost }: DatabaseOptions): Database {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: 'petstore-inventory',
    max: size,
    connectionTimeoutMillis: limits.connect,
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    query_timeout: limits.answer,
    keepAlive: true,
    idleTimeoutMillis: 30_000,
    maxLifetimeSeconds: 1800,
    types,
  })
  // Without a listener, a connection that breaks while it is idle would end the process.
  // Its message alone is passed on: the error carries the whole client, the key to cancel its statements included.
  pool.on('error', ({ message }) => onConnectionLost(message))
  // The pool stops listening while a connection is checked out; the one who has it may be between two statements.
  pool.on('connect', (client) => client.on('error', () => {}))

  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      const client = await pool.connect().catch((error: unknown) => {
        throw new DatabaseUnavailableError(error)
      })
      let broken = false
      try {
        const result = await client.query<Row>(text, [...values])
        return result.rows
      } catch (error) {
        broken = isFatal(error)
        throw isUnavailable(error) ? new DatabaseUnavailableError(error) : error
      } finally {
        // pool.query() would throw the connection away after any refused statement; it is still good.
        client.release(broken)
      }
    },

    close: () => pool.end(),
  }
}
