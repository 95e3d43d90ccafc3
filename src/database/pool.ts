import type pg from 'pg'
import { parseAddress } from './address.ts'
import { Connections, type PooledConnection } from './connections.ts'
import type { Database, Statement, TimeLimits } from './database.ts'
import { DatabaseUnavailableError, ReadOnlyServerError, ServerChangedError } from './errors.ts'
import { isFatal, isReadOnly, isUnavailable } from './failures.ts'
import type { LateConnections } from './late-connections.ts'
import { LateStatementError, PreparedStatement } from './prepared-statement.ts'
import type { PrimaryServer } from './primary.ts'
import { RowReader, type TextRow } from './row-reader.ts'
import { HAS_CITUS } from './server-status.ts'
import { directSession, pooledSession, resultTypes, sessionConfig } from './session.ts'
import { hasCause, isIdleTimeout, isOutdatedStatement } from './sqlstate.ts'

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
  /**
   * Keeps the connection of a named statement that PostgreSQL did not answer in time, until it does; see `LateConnections`.
   * Absent if such a connection is closed, as suits reads.
   */
  readonly late?: LateConnections
  /** Called with the reason when an idle connection is lost. The pool replaces it on its own. */
  readonly onConnectionLost: (reason: string) => void
}

/** The default lifetime of a connection. */
const LIFETIME_SECONDS = 1800

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
  const connections = new Connections({
    config: sessionConfig(parseAddress(url).url, session.options),
    server,
    size,
    connectMs: limits.connect,
    lifetimeSeconds,
    onConnectionLost,
  })

  const currentGeneration = (): number => server?.generation ?? 0
  let failures = 0
  const unavailable = (cause: unknown): DatabaseUnavailableError =>
    new DatabaseUnavailableError(cause, () => {
      failures++
    })

  const connect = async (): Promise<PooledConnection> => {
    try {
      return await connections.take()
    } catch (error) {
      throw unavailable(error)
    }
  }

  /** @throws {ServerChangedError} if the response may come from a server that is no longer in use */
  const checkGeneration = ({ generation }: PooledConnection): void => {
    if (generation !== currentGeneration()) throw new ServerChangedError()
  }

  /** Returns the error to throw for a failed statement. Renews all connections if the server has become read-only. */
  const failureOf = async (error: unknown, { client, generation }: PooledConnection): Promise<unknown> => {
    if (isReadOnly(error) && generation === currentGeneration())
      server?.renew('the server has become read-only')
    if (isUnavailable(error)) return unavailable(error)
    // Citus reports some failures of its workers as internal errors, although the statement is correct.
    return hasCause(error, 'internal') && (await hasCitus(client, limits.answer)) ? unavailable(error) : error
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
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new LateStatementError(rows)), limits.answer)
    })
    return Promise.race([rows, late]).finally(() => clearTimeout(timer))
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
        const connection = connections.takeIdle() ?? (await connect())
        const { client, commit } = connection
        commit.begin()
        try {
          const rows = await rowsOf<Row>(client, statement, values)
          checkGeneration(connection)
          if (commit.warning !== undefined) throw commit.warning
          connections.release(connection, false)
          return rows
        } catch (error) {
          // Nothing has run: the type of a column has changed, and a new connection parses the statement again; or the
          // session was ended because it was idle, as every other open one may be.
          if (isOutdatedStatement(error) || (isIdleTimeout(error) && attempt < size)) {
            connections.release(connection, true)
            continue
          }
          if (late !== undefined && error instanceof LateStatementError) {
            void late.keep(client, error).then((isUsable) => connections.release(connection, !isUsable))
            throw unavailable(error)
          }
          const failure = await failureOf(error, connection)
          connections.release(connection, isFatal(error))
          throw failure
        }
      }
    },

    async readRows(statement, onRow) {
      const connection = await connect()
      let timer: NodeJS.Timeout | undefined
      let isBroken = false
      try {
        await new Promise<void>((resolve, reject) => {
          timer = setTimeout(() => reject(new Error('PostgreSQL did not respond in time')), limits.answer)
          const handle = (row: TextRow): void => {
            timer?.refresh()
            onRow(row)
          }
          connection.client.query(new RowReader(rowsText(configOf(statement).text), handle, resolve, reject))
        })
        checkGeneration(connection)
      } catch (error) {
        isBroken = isFatal(error)
        throw await failureOf(error, connection)
      } finally {
        clearTimeout(timer)
        connections.release(connection, isBroken)
      }
    },

    refuseServer() {
      const error = new ReadOnlyServerError(false)
      server?.renew(error.message)
      return unavailable(error)
    },

    generation: currentGeneration,

    statistics: () => ({ size, failures, ...connections.statistics() }),

    close() {
      late?.close()
      return connections.close()
    },
  }
}

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

/** Returns whether the database has Citus; false if it does not answer. */
async function hasCitus(client: pg.Client, answerMs: number): Promise<boolean> {
  try {
    const config = { text: `SELECT WHERE ${HAS_CITUS}`, query_timeout: answerMs }
    const { rows } = await client.query(config)
    return rows.length > 0
  } catch {
    return false
  }
}
