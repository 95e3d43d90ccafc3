import pg from 'pg'
import { parseIntoClientConfig } from 'pg-connection-string'
import { CopyOut } from './copy-out.ts'
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

/**
 * The longest that one statement can take is `connect` + `answer`. Short waits for a lock are what statements of several
 * callers have; who waits for longer does so by trying again.
 */
export const requestLimits: TimeLimits = { connect: 2000, lock: 250, statement: 5000, answer: 6000 }

/** For reading all entries: a large table may take its time, as long as it keeps coming. */
export const listLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 120_000, answer: 6000 }

/** For a readiness check, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 1000 }

export interface DatabaseOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** The most connections that this pool opens. */
  readonly size: number
  readonly limits: TimeLimits
  /**
   * Whether a pooler stands in between that gives a connection to another client after every transaction. Then
   * statements go without names, and the role must bring the time limits, as a session's own would stay with others.
   */
  readonly behindPooler?: boolean
  /**
   * What its sessions set for themselves beside the limits, by the names of PostgreSQL's settings. The options of the
   * address may say otherwise. Behind a pooler nothing is set.
   */
  readonly settings?: Readonly<Record<string, string>>
  /** Told why, when a connection that nobody is waiting on is lost. The pool replaces it by itself. */
  readonly onConnectionLost: (reason: string) => void
}

/** A pool of connections to PostgreSQL. Nothing else in the service speaks to `pg`. */
export interface Database {
  /**
   * Runs one statement and returns its rows; `bigint` columns arrive as BigInt. A statement with a name is parsed and
   * planned once for each connection.
   *
   * @throws {DatabaseUnavailableError} when there is no connection, no answer in time, or the server cannot serve now
   * @throws {pg.DatabaseError} when PostgreSQL refuses the statement itself
   */
  query<Row extends pg.QueryResultRow>(statement: Statement, values?: readonly unknown[]): Promise<Row[]>

  /**
   * Runs a query and returns its rows as text, in the format of COPY: a line each, in pieces of any length. The
   * connection is held until the last piece was taken, or none is wanted any more.
   *
   * @throws what `query` does; the time limit for an answer holds for each piece
   */
  copy(query: string): AsyncIterable<Buffer>

  /** How the pool is now, and what it has failed to do since it was opened. */
  statistics(): PoolStatistics

  /** Waits for the statements on their way, then closes every connection. */
  close(): Promise<void>
}

export interface PoolStatistics {
  /** The most connections that it opens. */
  readonly size: number
  /** Connections that run a statement or are being made. */
  readonly used: number
  readonly idle: number
  /** Callers that wait for a connection. */
  readonly waiting: number
  /** How often there was no connection, no answer in time, or a server that cannot serve. */
  readonly failures: number
}

/** An SQL text, with a name where it is used often; the same name always stands for the same text. */
export type Statement = string | { readonly name: string; readonly text: string }

const INT8_OID = 20

// Of this pool alone: pg.types.setTypeParser would change every pool of the process.
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/** Opens a pool. It connects when it first has to, so a database that is away now is no error here. */
export function openDatabase({
  url,
  size,
  limits,
  behindPooler = false,
  settings = {},
  onConnectionLost,
}: DatabaseOptions): Database {
  // Read here, with the certificates that it names: a file that has gone by the time of a connection would raise its
  // error where nobody can catch it.
  const { options: given = '', ...address } = parseIntoClientConfig(url)
  const own = {
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    ...settings,
  }
  const ownOptions = Object.entries(own).map(([name, value]) => `-c ${name}=${value}`)
  const pool = new pg.Pool({
    application_name: 'petstore-inventory',
    ...address,
    // PgBouncer refuses options. Of two that set the same, PostgreSQL takes the later one.
    options: behindPooler ? given : [...ownOptions, given].join(' '),
    max: size,
    connectionTimeoutMillis: limits.connect,
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

  let failures = 0
  const unavailable = (cause: unknown): DatabaseUnavailableError => {
    failures++
    return new DatabaseUnavailableError(cause)
  }
  const connect = (): Promise<pg.PoolClient> =>
    pool.connect().catch((error: unknown) => {
      throw unavailable(error)
    })

  const configOf = (statement: Statement): { name?: string; text: string } => {
    if (typeof statement === 'string') return { text: statement }
    return behindPooler ? { text: statement.text } : statement
  }

  const command = (client: pg.PoolClient, text: string): Promise<pg.QueryResult> => {
    const config = { text, query_timeout: limits.answer }
    return client.query(config)
  }

  return {
    async query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly unknown[] = []) {
      const client = await connect()
      let broken = false
      try {
        // A limit of the whole pool would end a `copy` as well, whose pieces may go on coming for longer.
        const config = {
          ...configOf(statement),
          values: [...values],
          query_timeout: limits.answer,
        }
        const { rows } = await client.query<Row>(config)
        return rows
      } catch (error) {
        broken = isFatal(error)
        throw isUnavailable(error) ? unavailable(error) : error
      } finally {
        // pool.query() would throw the connection away after any refused statement; it is still good.
        client.release(broken)
      }
    },

    async *copy(query) {
      const client = await connect()
      // So it is released where its pieces are not taken to the end: what is left of them is still on its way.
      let broken = true
      let limit: NodeJS.Timeout | undefined
      try {
        if (behindPooler) await command(client, `BEGIN; SET LOCAL statement_timeout = ${limits.statement}`)
        const pieces = client.query(new CopyOut(`COPY (${query}) TO STDOUT`))
        const timer = setTimeout(() => pieces.destroy(new Error('No data in time')), limits.answer)
        limit = timer
        for await (const piece of pieces) {
          timer.refresh()
          yield piece
        }
        if (behindPooler) await command(client, 'COMMIT')
        broken = false
      } catch (error) {
        // A transaction that has failed would stay open.
        broken = behindPooler || isFatal(error)
        throw isUnavailable(error) ? unavailable(error) : error
      } finally {
        clearTimeout(limit)
        client.release(broken)
      }
    },

    statistics: () => ({
      size,
      used: pool.totalCount - pool.idleCount,
      idle: pool.idleCount,
      waiting: pool.waitingCount,
      failures,
    }),

    close: () => pool.end(),
  }
}
