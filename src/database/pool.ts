import pg from 'pg'
import { parseIntoClientConfig } from 'pg-connection-string'
import { parseAddress } from './address.ts'
import { commitWatchOf } from './commit-warnings.ts'
import { Connections } from './connections.ts'
import { CopyOut, type TextRow } from './copy-out.ts'
import {
  DatabaseUnavailableError,
  isFatal,
  isReadOnly,
  isUnavailable,
  ReadOnlyServerError,
  ServerChangedError,
} from './failures.ts'
import { PreparedStatement } from './prepared-statement.ts'
import type { PrimaryServer } from './primary.ts'

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
  /** A `postgres://` address. It may name several hosts only where `primary` chooses among them. */
  readonly url: string
  /**
   * The server that this pool shares with the other pools of the process. Absent where a connection to any server will
   * do, a standby included.
   */
  readonly primary?: PrimaryServer
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
  /** How long a connection is used, in seconds. */
  readonly lifetimeSeconds?: number
  /** Told why, when a connection that nobody is waiting on is lost. The pool replaces it by itself. */
  readonly onConnectionLost: (reason: string) => void
}

/** What runs single statements: a pool, or a transaction. */
export interface StatementRunner {
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
}

/** A pool of connections to PostgreSQL. Nothing else in the service speaks to `pg`. */
export interface Database extends StatementRunner {
  /** Whether a pooler stands in between, so that one connection may lead to another server process each time. */
  readonly isPooled: boolean

  /**
   * Runs one statement and returns its rows; `bigint` columns arrive as BigInt. A statement with a name is parsed and
   * planned once for each connection.
   *
   * @throws {DatabaseUnavailableError} when there is no connection, no answer in time, or the server cannot serve now;
   *   and for a commit with a warning (`UncertainCommitError`), which may be lost
   * @throws {pg.DatabaseError} when PostgreSQL refuses the statement itself
   */
  query<Row extends pg.QueryResultRow>(statement: Statement, values?: readonly unknown[]): Promise<Row[]>

  /**
   * Runs a query and returns its rows as text, in the format of COPY: a line each, in pieces of any length. The rows are
   * those of a moment after the query got its locks. The connection is held until the last piece is taken, or the caller
   * stops reading.
   *
   * @throws what `query` throws; the time limit for an answer applies to each piece
   */
  copy(query: string, before?: StatementBefore): AsyncIterable<Buffer>

  /**
   * Gives up the connections of every pool that shares the primary, because a statement showed that the server takes no
   * writes; returns the error to raise.
   */
  refuseServer(): DatabaseUnavailableError

  /** Equal for two moments between which the same server was in use. */
  generation(): number

  /** How the pool is now, and what it has failed to do since it was opened. */
  statistics(): PoolStatistics

  /** Waits for the statements on their way, then closes every connection. */
  close(): Promise<void>
}

/** A query that `copy` runs in the same transaction after it got the locks, and before it reads the rows. */
export interface StatementBefore {
  readonly text: string
  /** Called with the first row, whose values arrive as text. */
  readonly onRow: (row: TextRow) => void
}

export interface PoolStatistics {
  /** The most connections that it opens. */
  readonly size: number
  /** Connections that run a statement or are being made. */
  readonly used: number
  readonly idle: number
  /** Callers that wait for a connection. */
  readonly waiting: number
  /** Callers that got nothing, because there was no connection, no answer in time, or a server that cannot serve. */
  readonly failures: number
  /** Connections opened since the pool was. */
  readonly opened: number
}

/** An SQL text, with a name where it is used often; the same name always stands for the same text. */
export type Statement = string | { readonly name: string; readonly text: string }

const INT8_OID = 20

// Of this pool alone: pg.types.setTypeParser would change every pool of the process.
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/** How long a connection is used by default: half an hour. */
const LIFETIME_SECONDS = 1800

/** Hosts and database of an address as it has them, for logs: nothing of the user and the password. */
export function placeOf(url: string): { host: string; database: string } {
  const parts = /^\w+:\/\/(?:[^/?#]*@)?([^/?#]*)\/?([^?#]*)\??([^#]*)/.exec(url)
  const [, authority = '', database = '', parameters] = parts ?? []
  return { host: new URLSearchParams(parameters).get('host') ?? authority, database }
}

/** Opens a pool. It connects when it first has to, so a database that is away now is no error here. */
export function openDatabase({
  url,
  primary,
  size,
  limits,
  behindPooler = false,
  settings = {},
  lifetimeSeconds = LIFETIME_SECONDS,
  onConnectionLost,
}: DatabaseOptions): Database {
  const { hosts } = primary?.address ?? parseAddress(url)
  const own = {
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    ...settings,
  }
  const ownOptions = Object.entries(own).map(([name, value]) => `-c ${name}=${value}`)
  const hostConnectMs = limits.connect / hosts.length
  const connections = new Connections({
    // Read here, with the certificates that it names: a file that has gone by the time of a connection would raise its
    // error where nobody can catch it.
    hosts: hosts.map(({ name, url }) => {
      const { options: given = '', ...address } = parseIntoClientConfig(url)
      return {
        name,
        config: {
          application_name: 'petstore-inventory',
          ...address,
          // PgBouncer refuses options. Of two that set the same, PostgreSQL takes the later one.
          options: behindPooler ? given : [...ownOptions, given].join(' '),
          connectionTimeoutMillis: hostConnectMs,
          keepAlive: true,
          types,
        },
      }
    }),
    primary,
    size,
    connectMs: limits.connect,
    hostConnectMs,
    lifetimeSeconds,
    onConnectionLost,
  })

  let failures = 0
  const unavailable = (cause: unknown): DatabaseUnavailableError =>
    new DatabaseUnavailableError(cause, () => {
      failures++
    })

  const connect = async (): Promise<pg.PoolClient> => {
    try {
      return await connections.take()
    } catch (error) {
      throw unavailable(error)
    }
  }

  /** @throws {ServerChangedError} where what the connection has returned may be another server's than that in use */
  const checkGeneration = (client: pg.PoolClient): void => {
    if (primary !== undefined && !primary.isCurrent(client)) throw new ServerChangedError()
  }

  /** What to raise for an error of a statement. */
  const failureOf = (error: unknown, client: pg.PoolClient): unknown => {
    if (isReadOnly(error) && primary?.isCurrent(client)) primary.renew('the server has become read-only')
    return isUnavailable(error) ? unavailable(error) : error
  }

  const configOf = (statement: Statement): { name?: string; text: string } => {
    if (typeof statement === 'string') return { text: statement }
    return behindPooler ? { text: statement.text } : statement
  }

  const rowsOf = async <Row extends pg.QueryResultRow>(
    client: pg.PoolClient,
    statement: Statement,
    values: readonly unknown[],
  ): Promise<Row[]> => {
    const { name, text } = configOf(statement)
    const texts = textsOf(values)
    if (name === undefined || texts === undefined) {
      // A limit of the whole pool would end a `copy` as well, whose pieces may go on coming for longer.
      const config = { ...configOf(statement), values: [...values], query_timeout: limits.answer }
      return (await client.query<Row>(config)).rows
    }
    const prepared = new PreparedStatement<Row>(name, text, texts, types)
    const timer = setTimeout(() => prepared.giveUp(), limits.answer)
    try {
      return await client.query(prepared).rows
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * The statements of a `copy`, sent as one text and so one transaction, which ends with it, whatever happens. COPY takes
   * its snapshot before it waits for a lock; when TRUNCATE or a rewrite of the table commits meanwhile, the snapshot is
   * too old to see any row (PostgreSQL manual, section 13.6). So the locks come first, by a query that any kind of
   * relation allows, and at READ COMMITTED the COPY takes a snapshot of its own.
   */
  const copyText = (query: string, before: StatementBefore | undefined): string =>
    [
      'SET TRANSACTION ISOLATION LEVEL READ COMMITTED',
      ...(behindPooler
        ? [`SET LOCAL lock_timeout = ${limits.lock}`, `SET LOCAL statement_timeout = ${limits.statement}`]
        : []),
      `SELECT FROM (${query}) AS rows LIMIT 0`,
      ...(before === undefined ? [] : [before.text]),
      `COPY (${query}) TO STDOUT`,
    ].join('; ')

  return {
    isPooled: behindPooler,

    async query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly unknown[] = []) {
      const client = connections.takeKept() ?? (await connect())
      const commit = commitWatchOf(client)
      commit.begin()
      try {
        const rows = await rowsOf<Row>(client, statement, values)
        checkGeneration(client)
        if (commit.warning !== undefined) throw commit.warning
        connections.keep(client)
        return rows
      } catch (error) {
        const failure = failureOf(error, client)
        // pool.query() would throw the connection away after any refused statement; it is still good.
        connections.release(client, isFatal(error))
        throw failure
      }
    },

    async *copy(query, before) {
      const client = await connect()
      // Also released as broken if the caller stops reading: the remaining pieces are still on their way.
      let isBroken = true
      let limit: NodeJS.Timeout | undefined
      try {
        const pieces = client.query(new CopyOut(copyText(query, before), before?.onRow))
        const timer = setTimeout(() => pieces.destroy(new Error('No data in time')), limits.answer)
        limit = timer
        for await (const piece of pieces) {
          timer.refresh()
          yield piece
        }
        checkGeneration(client)
        isBroken = false
      } catch (error) {
        isBroken = isFatal(error)
        throw failureOf(error, client)
      } finally {
        clearTimeout(limit)
        connections.release(client, isBroken)
      }
    },

    refuseServer() {
      const error = new ReadOnlyServerError(false)
      primary?.renew(error.message)
      return unavailable(error)
    },

    generation: () => primary?.generation ?? 0,

    statistics: () => ({ size, failures, ...connections.statistics() }),

    close: () => connections.close(),
  }
}

/** Values as PostgreSQL reads them; undefined where pg has to convert one of them, an array for example. */
function textsOf(values: readonly unknown[]): (string | null)[] | undefined {
  const texts: (string | null)[] = []
  for (const value of values) {
    if (value === null || typeof value === 'string') texts.push(value)
    else if (typeof value === 'number' || typeof value === 'bigint') texts.push(String(value))
    else return undefined
  }
  return texts
}
