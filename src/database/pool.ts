import pg from 'pg'
import { parseAddress } from './address.ts'
import { CommitWatch } from './commit-warnings.ts'
import type { Database, Statement, TimeLimits } from './database.ts'
import {
  hasCause,
  isFatal,
  isIdleTimeout,
  isOutdatedStatement,
  isReadOnly,
  isUnavailable,
} from './error-meaning.ts'
import {
  DatabaseUnavailableError,
  IgnoredSettingsError,
  ReadOnlyServerError,
  ServerChangedError,
} from './errors.ts'
import { LateStatementError, PreparedStatement } from './prepared-statement.ts'
import type { PrimaryServer } from './primary.ts'
import { hasCitus } from './server-status.ts'
import { directSession, pooledSession, resultTypes, sessionConfig } from './session.ts'
import { askServer } from './session-server.ts'

/**
 * A statement takes at most `connect` + `answer`. `answer` is longer than `statement`, so that PostgreSQL cancels a statement
 * and reports it, and the client gives up only if the server no longer responds. The limit for locks is short, because one
 * statement serves several callers: a caller whose row is locked waits longer by retries.
 */
export const requestLimits: TimeLimits = { connect: 2000, lock: 250, statement: 5000, answer: 6000 }

/** For reads of all entries. A large table may take minutes, as long as data keeps arriving. */
export const listLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 120_000, answer: 6000 }

/** For readiness checks, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 1000 }

/** How long a connection may be idle before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** The default lifetime of a connection. */
const LIFETIME_SECONDS = 1800

export interface DatabaseOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Verifies the server of each connection. Absent if a connection to any server is allowed, including a standby. */
  readonly server?: PrimaryServer
  /** Maximum connections. */
  readonly size: number
  readonly limits: TimeLimits
  /**
   * Whether a connection pooler in transaction mode is between this process and the server; see `pooledSession`.
   */
  readonly behindPooler?: boolean
  /**
   * PostgreSQL settings for each session, besides the time limits. Options in the address take precedence. Ignored behind a
   * pooler.
   */
  readonly settings?: Readonly<Record<string, string>>
  /** How long a connection is used before it is closed, in seconds. */
  readonly lifetimeSeconds?: number
  /** What to do with a named statement that PostgreSQL did not answer in time. Its connection is closed by default, as suits reads. */
  readonly late?: LateStatements
  /** Called with the reason when an idle connection is lost. The pool replaces it on its own. */
  readonly onConnectionLost: (reason: string) => void
}

/**
 * Keeps the connection of a late statement in use until PostgreSQL answers: a commit that waits for a synchronous standby keeps
 * its server process even if the client disconnects, so that each new connection would leave another process behind.
 */
export interface LateStatements {
  /** Returns whether PostgreSQL still runs the statement. If it does not, the response was lost, and the connection is closed. */
  isRunning(pid: number): Promise<boolean>
  /** Interval between the checks. */
  readonly checkMs: number
}

/** A client whose time for connecting includes the verification of its server. */
class TimedClient extends pg.Client {
  readonly createdAt = performance.now()
}

/** A verified connection. */
interface Connection {
  readonly client: pg.PoolClient
  readonly commit: CommitWatch
  /** The generation of the server in which it was verified. */
  readonly generation: number
  /** The server process, unless there is a connection pooler. */
  readonly pid: number
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
  late,
  onConnectionLost,
}: DatabaseOptions): Database {
  const session = behindPooler ? pooledSession(limits) : directSession(limits, settings)
  const verified = new WeakMap<pg.ClientBase, Pick<Connection, 'generation' | 'pid'>>()
  const connections = new Map<pg.ClientBase, Connection>()
  const lateClients = new Set<pg.PoolClient>()
  let opened = 0
  let failures = 0

  const pool = new pg.Pool({
    ...sessionConfig(parseAddress(url).url, session.options),
    max: size,
    connectionTimeoutMillis: limits.connect,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    maxLifetimeSeconds: lifetimeSeconds,
    Client: TimedClient,
    onConnect: async (client) => {
      opened++
      const since = client instanceof TimedClient ? client.createdAt : performance.now()
      const found = await askServer(client, Math.max(1, since + limits.connect - performance.now()))
      if (!behindPooler && !found.hasSettings) throw new IgnoredSettingsError()
      verified.set(client, { pid: found.pid, generation: server?.verify(found) ?? 0 })
    },
  })
  pool.on('connect', (client) => {
    // The pool listens only while a client is idle. Without a listener, an error between two statements would end the process.
    client.on('error', () => {})
    const { generation = 0, pid = 0 } = verified.get(client) ?? {}
    connections.set(client, { client, commit: new CommitWatch(client), generation, pid })
  })
  pool.on('remove', (client) => connections.delete(client))
  // Only the message is passed on, because the error refers to the client, which contains the secret key for canceling.
  pool.on('error', ({ message }, client) => {
    if (verified.get(client)?.generation === currentGeneration()) onConnectionLost(message)
  })
  // The results of statements in progress are not used any more, and the old server may never respond.
  server?.onRenewal(() => {
    for (const { client } of connections.values()) client.connection.stream.destroy()
  })

  const currentGeneration = (): number => server?.generation ?? 0
  const unavailable = (cause: unknown): DatabaseUnavailableError =>
    new DatabaseUnavailableError(cause, () => {
      failures++
    })

  /** Returns a connection to the server in use. Rejects if none is available within `connect`, or if the server must not be used. */
  const connect = async (): Promise<Connection> => {
    for (;;) {
      const refusal = pool.idleCount === 0 ? server?.refusal : undefined
      if (refusal !== undefined) throw unavailable(refusal)
      const client = await pool.connect().catch((error: unknown) => {
        throw unavailable(error)
      })
      const connection = connections.get(client)
      if (connection?.generation === currentGeneration()) return connection
      client.release(true)
    }
  }

  /** @throws {ServerChangedError} if the response may come from a server that is no longer in use */
  const checkGeneration = ({ generation }: Connection): void => {
    if (generation !== currentGeneration()) throw new ServerChangedError()
  }

  /** Returns the error to throw for a failed statement. Renews all connections if the server has become read-only. */
  const failureOf = async (error: unknown, { client, generation }: Connection): Promise<unknown> => {
    if (isReadOnly(error) && generation === currentGeneration())
      server?.renew('the server has become read-only')
    if (isUnavailable(error)) return unavailable(error)
    // Citus reports some failures of its workers as internal errors, although the statement is correct.
    return hasCause(error, 'internal') && (await isCitus(client)) ? unavailable(error) : error
  }

  /** Returns whether the database has Citus; false if it does not answer. */
  const isCitus = (client: pg.Client): Promise<boolean> =>
    hasCitus({ query: (text) => rowsOf(client, text, []) }).catch(() => false)

  const keepLate = (
    { client, pid }: Connection,
    { answered }: LateStatementError,
    checks: LateStatements,
  ): void => {
    const close = (): unknown => client.connection.stream.destroy()
    const check = (): Promise<unknown> => checks.isRunning(pid).then((isRunning) => isRunning || close())
    const timer = setInterval(() => check().catch(() => {}), checks.checkMs).unref()
    lateClients.add(client)
    void answered
      .then(() => false, isFatal)
      .then((isBroken) => {
        clearInterval(timer)
        lateClients.delete(client)
        client.release(isBroken)
      })
  }

  const configOf = (statement: Statement): { name?: string; text: string } => {
    if (typeof statement === 'string') return { text: statement }
    return session.hasNames ? statement : { name: '', text: statement.text }
  }

  const rowsOf = async <Row extends pg.QueryResultRow>(
    client: pg.Client,
    statement: Statement,
    values: readonly unknown[],
  ): Promise<Row[]> => {
    const { name, text } = configOf(statement)
    const texts = textsOf(values)
    if (name === undefined || texts === undefined) {
      // Set per statement: a limit for the whole pool would also end `readRows`, whose rows may keep arriving for longer.
      const named = name === undefined ? {} : { name }
      const config = { ...named, text, values: [...values], query_timeout: limits.answer }
      return (await client.query<Row>(config)).rows
    }
    const rows = new Promise<Row[]>((resolve, reject) => {
      client.query(new PreparedStatement({ name, text }, texts, resultTypes, resolve, reject))
    })
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new LateStatementError(rows)), limits.answer)
    })
    return Promise.race([rows, timeout]).finally(() => clearTimeout(timer))
  }

  /**
   * Returns the statements of `readRows`. They are sent as one text, which PostgreSQL runs as one transaction. At READ COMMITTED,
   * a query takes its snapshot after it got its locks. With an earlier one, it sees no rows if TRUNCATE or a rewrite of the table
   * commits while it waits (PostgreSQL manual, section 13.6).
   */
  const rowsText = (query: string): string =>
    ['SET TRANSACTION ISOLATION LEVEL READ COMMITTED', ...session.limits, query].join('; ')

  return {
    backend: session.backend,

    async query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly unknown[] = []) {
      for (let attempt = 0; ; attempt++) {
        const connection = await connect()
        const { client, commit } = connection
        commit.begin()
        try {
          const rows = await rowsOf<Row>(client, statement, values)
          checkGeneration(connection)
          if (commit.warning !== undefined) throw commit.warning
          client.release()
          return rows
        } catch (error) {
          // Nothing has run: the type of a column has changed, and a new connection parses the statement again; or the
          // session was ended because it was idle, as every other open one may be.
          if (isOutdatedStatement(error) || (isIdleTimeout(error) && attempt < size)) {
            client.release(true)
            continue
          }
          if (late !== undefined && error instanceof LateStatementError) {
            keepLate(connection, error, late)
            throw unavailable(error)
          }
          const failure = await failureOf(error, connection)
          client.release(isFatal(error))
          throw failure
        }
      }
    },

    async readRows(statement, onRow) {
      const connection = await connect()
      const { client } = connection
      let timer: NodeJS.Timeout | undefined
      let isBroken = false
      try {
        await new Promise<void>((resolve, reject) => {
          timer = setTimeout(() => reject(new Error('PostgreSQL did not respond in time')), limits.answer)
          const { name, text } = configOf(statement)
          const config = {
            ...(name ? { name, text } : { text: rowsText(text) }),
            rowMode: 'array',
            types: asText,
          }
          const query = new pg.Query<(string | null)[]>(config)
          query.on('row', (row) => {
            timer?.refresh()
            onRow(row)
          })
          query.on('end', () => resolve()).on('error', reject)
          client.query(query)
        })
        checkGeneration(connection)
      } catch (error) {
        isBroken = isFatal(error)
        throw await failureOf(error, connection)
      } finally {
        clearTimeout(timer)
        client.release(isBroken)
      }
    },

    refuseServer() {
      const error = new ReadOnlyServerError(false)
      server?.renew(error.message)
      return unavailable(error)
    },

    generation: currentGeneration,

    statistics: () => ({
      size,
      used: pool.totalCount - pool.idleCount,
      idle: pool.idleCount,
      waiting: pool.waitingCount,
      failures,
      opened,
    }),

    close() {
      for (const { connection } of lateClients) connection.stream.destroy()
      return pool.end()
    },
  }
}

/** Leaves every value as the text that PostgreSQL sends. */
const asText: pg.CustomTypesConfig = { getTypeParser: () => (text: string) => text }

/** Returns the values as text for PostgreSQL; undefined if pg has to convert one of them, such as an array. */
function textsOf(values: readonly unknown[]): (string | null)[] | undefined {
  const texts: (string | null)[] = []
  for (const value of values) {
    if (value === null || typeof value === 'string') texts.push(value)
    else if (typeof value === 'number' || typeof value === 'bigint') texts.push(String(value))
    else return undefined
  }
  return texts
}
