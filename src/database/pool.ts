import pg from 'pg'
import { parseIntoClientConfig } from 'pg-connection-string'
import { parseAddress } from './address.ts'
import { commitWatchOf } from './commit-warnings.ts'
import { Connections, type VerifiedServer } from './connections.ts'
import { CopyOut, type TextRow } from './copy-out.ts'
import {
  DatabaseUnavailableError,
  isFatal,
  isInternalError,
  isOutdatedStatement,
  isReadOnly,
  isUnavailable,
  ReadOnlyServerError,
  ServerChangedError,
} from './failures.ts'
import { PreparedStatement } from './prepared-statement.ts'

/**
 * Time limits in milliseconds. Each is longer than the one it backs up: PostgreSQL cancels a statement first and reports it;
 * the client gives up only if the server does not respond any more.
 */
export interface TimeLimits {
  /** For getting a connection: an idle one from the pool, or a new one. */
  readonly connect: number
  /** For a lock, for example on a row that an open transaction has updated. */
  readonly lock: number
  /** For a statement, as PostgreSQL measures it. */
  readonly statement: number
  /** For the response to a statement, as this process measures it. */
  readonly answer: number
}

/**
 * A statement takes at most `connect` + `answer`. The limit for locks is short, because one statement serves several callers:
 * a caller whose row is locked waits longer by retries.
 */
export const requestLimits: TimeLimits = { connect: 2000, lock: 250, statement: 5000, answer: 6000 }

/** For reading all entries: a large table may take long, as long as data keeps coming. */
export const listLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 120_000, answer: 6000 }

/** For reading all entries from a standby: what takes longer there is left to the primary. */
export const standbyLimits: TimeLimits = { ...listLimits, connect: 1000, lock: 250 }

/** For readiness checks, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 1000 }

export interface DatabaseOptions {
  /** A `postgres://` address. It may name several hosts only if `server` chooses among them. */
  readonly url: string
  /** Verifies the server of each connection. Absent if a connection to any server is allowed, including a standby. */
  readonly server?: VerifiedServer
  /** Maximum connections. */
  readonly size: number
  readonly limits: TimeLimits
  /**
   * Whether a connection pooler in transaction mode is between this process and the server. Then statements have no names,
   * and the role must have the time limits: what a session sets for itself would affect other clients.
   */
  readonly behindPooler?: boolean
  /**
   * PostgreSQL settings of its sessions, besides the time limits. The options of the address take precedence. Behind a pooler
   * nothing is set.
   */
  readonly settings?: Readonly<Record<string, string>>
  /** How long a connection is used, in seconds. */
  readonly lifetimeSeconds?: number
  /** Called with the reason when an idle connection is lost. The pool replaces it on its own. */
  readonly onConnectionLost: (reason: string) => void
}

/** Runs single statements: a pool, or a transaction. */
export interface StatementRunner {
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
}

/** A pool of connections to PostgreSQL. */
export interface Database extends StatementRunner {
  /** Whether a pooler is in between, so that each statement may run in another server process. */
  readonly isPooled: boolean

  /**
   * Runs one statement and returns its rows; `bigint` columns arrive as BigInt. A statement with a name is parsed and
   * planned once for each connection.
   *
   * @throws {DatabaseUnavailableError} if there is no connection, no response in time, or the server cannot serve now; and
   *   for a commit with a warning (`UncertainCommitError`), which may be lost
   * @throws {pg.DatabaseError} if PostgreSQL rejects the statement itself
   */
  query<Row extends pg.QueryResultRow>(statement: Statement, values?: readonly unknown[]): Promise<Row[]>

  /**
   * Runs a query and returns its rows as text, in the format of COPY: a line each, in pieces of any length. The rows are of a
   * snapshot that was taken after the query got its locks. The connection is in use until the last piece is read, or the
   * caller stops reading.
   *
   * @throws what `query` throws; the time limit for a response applies to each piece
   */
  copy(query: string, before?: StatementBefore): AsyncIterable<Buffer>

  /**
   * Discards the connections of every pool that shares the server, because a statement showed that the server takes no
   * writes. Returns the error to throw.
   */
  refuseServer(): DatabaseUnavailableError

  /** Equal at two times if the same server was in use between them. */
  generation(): number

  /** The state of the pool now, and its failures since it was opened. */
  statistics(): PoolStatistics

  /** Waits for the statements in flight, then closes every connection. */
  close(): Promise<void>
}

/** A query that `copy` runs in its transaction, after it got the locks and before it reads the rows. */
export interface StatementBefore {
  readonly text: string
  /** Called with the first row, whose values arrive as text. */
  readonly onRow: (row: TextRow) => void
}

export interface PoolStatistics {
  /** Maximum connections. */
  readonly size: number
  /** Connections that run a statement or are being opened. */
  readonly used: number
  readonly idle: number
  /** Callers that wait for a connection. */
  readonly waiting: number
  /** Callers that got an error, because there was no connection, no response in time, or a server that cannot serve. */
  readonly failures: number
  /** Connections opened since the pool was opened. */
  readonly opened: number
}

/** An SQL text, with a name where it is used often; the same name always stands for the same text. */
export type Statement =
  | string
  | {
      readonly name: string
      readonly text: string
      /** How long to wait for the response, in milliseconds, instead of the pool's limit. */
      readonly answer?: number
    }

const INT8_OID = 20

// For this pool only: pg.types.setTypeParser would change every pool of the process.
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/** The default lifetime of a connection. */
const LIFETIME_SECONDS = 1800

/** Returns the hosts and the database of an address, for logs, without user and password. */
export function placeOf(url: string): { host: string; database: string } {
  const parts = /^\w+:\/\/(?:[^/?#]*@)?([^/?#]*)\/?([^?#]*)\??([^#]*)/.exec(url)
  const [, authority = '', database = '', parameters] = parts ?? []
  return { host: new URLSearchParams(parameters).get('host') ?? authority, database }
}

/** Opens a pool. It connects when a connection is first needed, so it does not fail if the database is down now. */
export function openDatabase({
  url,
  server,
  size,
  limits,
  behindPooler = false,
  settings = {},
  lifetimeSeconds = LIFETIME_SECONDS,
  onConnectionLost,
}: DatabaseOptions): Database {
  const { hosts } = server?.address ?? parseAddress(url)
  const own = {
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    ...settings,
  }
  const ownOptions = Object.entries(own).map(([name, value]) => `-c ${name}=${value}`)
  const hostConnectMs = limits.connect / hosts.length
  const connections = new Connections({
    // Parsed here, which also reads the certificate files: if one were missing when a connection is opened, no one could
    // catch the error.
    hosts: hosts.map(({ name, url }) => {
      const { options: given = '', ...address } = parseIntoClientConfig(url)
      return {
        name,
        config: {
          application_name: 'petstore-inventory',
          ...address,
          // PgBouncer rejects options. If two set the same, PostgreSQL uses the later one.
          options: behindPooler ? given : [...ownOptions, given].join(' '),
          connectionTimeoutMillis: hostConnectMs,
          keepAlive: true,
          types,
        },
      }
    }),
    server,
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

  /** @throws {ServerChangedError} if the response may be of another server than the one in use */
  const checkGeneration = (client: pg.PoolClient): void => {
    if (server !== undefined && !server.isCurrent(client)) throw new ServerChangedError()
  }

  /** Whether tables may be on other servers, which Citus reaches for this one. */
  const hasWorkers = async (client: pg.PoolClient): Promise<boolean> => {
    try {
      const config = {
        text: "SELECT FROM pg_extension WHERE extname = 'citus'",
        query_timeout: limits.answer,
      }
      const { rows } = await client.query(config)
      return rows.length > 0
    } catch {
      return false
    }
  }

  /** Returns the error to throw for an error of a statement. */
  const failureOf = async (error: unknown, client: pg.PoolClient): Promise<unknown> => {
    if (isReadOnly(error) && server?.isCurrent(client)) server.renew('the server has become read-only')
    if (isUnavailable(error)) return unavailable(error)
    // With this Citus reports some failures of workers, which are not the statement's.
    return isInternalError(error) && (await hasWorkers(client)) ? unavailable(error) : error
  }

  const configOf = (statement: Statement): { name?: string; text: string; answer: number } => {
    if (typeof statement === 'string') return { text: statement, answer: limits.answer }
    const { name, text, answer = limits.answer } = statement
    return behindPooler ? { text, answer } : { name, text, answer }
  }

  const rowsOf = async <Row extends pg.QueryResultRow>(
    client: pg.PoolClient,
    statement: Statement,
    values: readonly unknown[],
  ): Promise<Row[]> => {
    const { name, text, answer } = configOf(statement)
    const texts = textsOf(values)
    if (name === undefined || texts === undefined) {
      // Not a limit of the whole pool, which would end a `copy`, too: its pieces may keep coming for longer.
      const config = { ...(name !== undefined && { name }), text, values: [...values], query_timeout: answer }
      return (await client.query<Row>(config)).rows
    }
    const prepared = new PreparedStatement<Row>(name, text, texts, types)
    const timer = setTimeout(() => prepared.giveUp(), answer)
    try {
      return await client.query(prepared).rows
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * Returns the statements of a `copy`. They are sent as one text, which PostgreSQL runs as one transaction. COPY takes its
   * snapshot before it waits for a lock; if TRUNCATE or a rewrite of the table commits meanwhile, the snapshot is too old to
   * see any row (PostgreSQL manual, section 13.6). So a query that any kind of relation allows takes the locks first, and at
   * READ COMMITTED the COPY takes a new snapshot.
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
      for (;;) {
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
          // A migration has changed a type. A new connection parses the statement again.
          if (isOutdatedStatement(error)) {
            connections.release(client, true)
            continue
          }
          const failure = await failureOf(error, client)
          // After a rejected statement the connection can still be used; pool.query() would close it.
          connections.release(client, isFatal(error))
          throw failure
        }
      }
    },

    async *copy(query, before) {
      const client = await connect()
      // Stays true if the caller stops reading: the remaining pieces are still to come.
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
        throw await failureOf(error, client)
      } finally {
        clearTimeout(limit)
        connections.release(client, isBroken)
      }
    },

    refuseServer() {
      const error = new ReadOnlyServerError(false)
      server?.renew(error.message)
      return unavailable(error)
    },

    generation: () => server?.generation ?? 0,

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
