import type pg from 'pg'
import type { DatabaseUnavailableError } from './errors.ts'

/** Time limits in milliseconds. */
export interface TimeLimits {
  /** For getting a connection: an idle one from the pool or a new one. */
  readonly connect: number
  /** For a lock, for example on a row that an open transaction has updated. */
  readonly lock: number
  /** For a statement, measured by PostgreSQL. */
  readonly statement: number
  /** For a statement, from the wait for a connection to its response, or to the next row, measured by this process. */
  readonly answer: number
}

/** A value of a statement. */
export type Value = string | number | bigint | null

/** The values of a row as text, in the order of its columns. */
export type TextRow = readonly (string | null)[]

/** Runs single statements: a pool, or a transaction. */
export interface StatementRunner {
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
}

/** A pool of connections to PostgreSQL. */
export interface Database extends StatementRunner {
  /**
   * SQL expression that identifies the server process in which a statement runs. Two processes may have the same value only if a
   * connection was opened in between; see `statistics`.
   */
  readonly backend: string

  /**
   * Runs one statement and returns its rows; `bigint` columns arrive as BigInt. A statement with a name is parsed only once
   * per connection.
   *
   * @throws {DatabaseUnavailableError} if no connection is available or no response arrives in time, if the server cannot
   *   serve now, or if PostgreSQL warns about the commit (`UncertainCommitError`), which may then be lost
   * @throws {pg.DatabaseError} if PostgreSQL rejects the statement itself
   */
  query<Row extends pg.QueryResultRow>(statement: Statement, values?: readonly Value[]): Promise<Row[]>

  /**
   * Runs a statement without parameters and calls `onRow` with each row as it arrives. The rows come from a snapshot that was
   * taken after the statement got its locks. `onRow` must not throw.
   *
   * @throws what `query` throws; the time limit for a response applies to each row
   */
  readRows(text: string, onRow: (row: TextRow) => void): Promise<void>

  /**
   * Discards the connections of every pool that shares the server, because a statement showed that the server is read-only.
   * Returns the error to throw.
   */
  refuseServer(): DatabaseUnavailableError

  /** Returns the current state of the pool, and its counters since it was opened. */
  statistics(): PoolStatistics

  /** Waits for the statements in flight, then closes every connection. */
  close(): Promise<void>
}

export interface PoolStatistics {
  /** Maximum connections. */
  readonly size: number
  /** Connections that run a statement or are being opened. */
  readonly used: number
  readonly idle: number
  /** Callers that are waiting for a connection. */
  readonly waiting: number
  /** Connections opened since the pool was opened. */
  readonly opened: number
}

/** A statement that runs often. Its name always stands for the same text. */
export interface NamedStatement {
  readonly name: string
  readonly text: string
}

/** An SQL statement. */
export type Statement = string | NamedStatement
