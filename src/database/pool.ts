import pg from 'pg'
import { mayBeCommittedElsewhere, type Outcome } from './causes.ts'
import { DatabaseConnection } from './database-connection.ts'
import { queryNamed } from './prepared-statement.ts'
import { askServer, type PrimaryServer } from './primary.ts'
import { directSession, pooledSession, sessionConfig } from './session.ts'
import { type Statement, type TextRow, toText, type Value } from './statement.ts'
import { hasReason, StatementError, toStatementError } from './statement-error.ts'
import type { TimeLimits } from './time-limits.ts'

export interface PoolOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Verifies the server of each connection. */
  readonly server: PrimaryServer
  /** Maximum connections. */
  readonly size: number
  readonly limits: TimeLimits
  /** Whether a connection pooler is in between; see `pooledSession`. */
  readonly behindPooler?: boolean
  /** Further settings of each session. Ignored behind a pooler. */
  readonly settings?: Readonly<Record<string, string>>
  /** How long a connection is used before it is closed, in seconds; by default, without limit. */
  readonly lifetimeSeconds?: number
  /** Whether idle connections stay open. */
  readonly staysOpen?: boolean
  /**
   * Whether no connection is opened while a commit waits for a synchronous standby for longer than a statement may take. Its server
   * process stays even if the client disconnects: each new connection could leave another one behind.
   */
  readonly isForUpdates?: boolean
  /** Called with the reason when an idle connection is lost. The pool replaces it on its own. */
  readonly onConnectionLost: (reason: string) => void
}

/** How long a connection may be idle, unless it stays open. */
const IDLE_TIMEOUT_MS = 30_000

/**
 * How long a connection stays after an ERROR that nobody expects: an older one ends, as its session may be outdated. A statement that
 * always fails costs no more logins than one a second for each connection.
 */
const NEW_MS = 1000

/** Leaves every value as text. */
const asText: pg.CustomTypesConfig = { getTypeParser: () => (text: string) => text }

type Deadline = ReturnType<typeof deadlineIn>

/** Returns a time limit for PostgreSQL, which begins again when it is extended. */
function deadlineIn(ms: number) {
  let timer: NodeJS.Timeout | undefined
  const expired = new Promise<void>((resolve) => {
    // pg-pool never serves who still waits for a connection when it ends: that must not keep the process running.
    timer = setTimeout(resolve, ms).unref()
  })
  return {
    /** Waits for `work`, which has this outcome if it is late. */
    within: <Result>(work: Promise<Result>, outcome: Outcome) => {
      const late = expired.then(() => {
        throw new StatementError(new Error('PostgreSQL did not respond in time'), outcome, 'late')
      })
      return Promise.race([work, late])
    },
    extend: () => timer?.refresh(),
    end: () => clearTimeout(timer),
  }
}

/** A pool of connections to PostgreSQL. */
export type Pool = ReturnType<typeof createPool>

/** Creates a pool, which connects when a connection is first needed. */
export function createPool(options: PoolOptions) {
  const { server, size, limits } = options
  const session = options.behindPooler ? pooledSession(limits) : directSession(limits, options.settings ?? {})
  let opened = 0

  /** Verifies a new connection before its first use. */
  const verify = async (client: pg.ClientBase): Promise<void> => {
    opened++
    if (!(client instanceof DatabaseConnection)) return
    const found = await askServer(client, limits)
    client.expectState('I', 'notSent')
    if (session.options !== '' && !found.hasSettings)
      throw new StatementError(
        new Error('the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)'),
        'notSent',
        'settings',
      )
    if (options.isForUpdates && found.hasLateCommit)
      throw new StatementError(new Error('commits wait for a synchronous standby'), 'notSent', 'late')
    server.verify(client, found)
  }

  const pool = new pg.Pool({
    ...sessionConfig(options.url, session.options),
    max: size,
    connectionTimeoutMillis: limits.connect,
    idleTimeoutMillis: options.staysOpen ? 0 : IDLE_TIMEOUT_MS,
    maxLifetimeSeconds: options.lifetimeSeconds,
    Client: DatabaseConnection,
    onConnect: verify,
  })

  /** Whether a connection is to the server in use. */
  const isCurrent = (client: pg.PoolClient): client is DatabaseConnection & pg.PoolClient =>
    client instanceof DatabaseConnection && !client.isDiscarded

  // Only the message, because the error refers to the client with the secret key for canceling.
  pool.on('error', ({ message }, client) => {
    // Its connections may end after the pool has: a server that stops then is no loss.
    if (isCurrent(client) && !pool.ending) options.onConnectionLost(message)
  })

  /** Returns a connection to the server in use. */
  const take = async (deadline: Deadline) => {
    for (;;) {
      const connecting = pool.connect()
      const client = await deadline.within(connecting, 'notSent').catch((error: unknown) => {
        connecting.then((late) => late.release()).catch(() => {})
        throw error instanceof StatementError ? error : new StatementError(error, 'notSent')
      })
      if (isCurrent(client)) return client
      client.release(true)
    }
  }

  /** Gives back the connection of a statement that failed, or ends it, and returns what to throw. */
  const giveBack = async (client: DatabaseConnection & pg.PoolClient, error: unknown, deadline: Deadline) => {
    const isRolledBack = await deadline.within(client.hasRolledBack(error), 'unknown').catch(() => false)
    const outcome = isRolledBack && !mayBeCommittedElsewhere(error) ? 'rolledBack' : 'unknown'
    const failure = toStatementError(error, outcome)
    if (hasReason(failure, 'readOnly') && isRolledBack && isCurrent(client)) server.discardReadOnly(outcome)
    if (!isRolledBack) client.cut()
    // The session may remember what is wrong, such as the plan of a function, a setting of an extension, or the type of a column. What
    // the server does not support, as with Citus, is the same in all of them.
    const isOfSession =
      failure instanceof StatementError && failure.blame === 'statement' && failure.reason !== 'unsupported'
    const isNew = performance.now() - client.openedAt < NEW_MS
    // A statement of ours that fails on a session that has served one is no reason to wait.
    const isOutdated = isOfSession && (!isNew || (client.hasServed && !failure.isInFunction))
    client.release(!isRolledBack || isOutdated)
    return failure
  }

  /** Runs one statement. `work` calls `onProgress` when a part of the response arrives. */
  const run = async <Result>(
    work: (client: DatabaseConnection, onProgress: () => void) => Promise<Result>,
  ): Promise<Result> => {
    const deadline = deadlineIn(limits.answer)
    try {
      const client = await take(deadline)
      try {
        const result = await deadline.within(work(client, deadline.extend), 'unknown')
        // The response may come from a server that is no longer in use.
        if (!isCurrent(client))
          throw new StatementError(
            new Error('the connections were renewed while the statement was under way'),
            'unknown',
            'lost',
          )
        client.expectCommit()
        client.hasServed = true
        client.release()
        return result
      } catch (error) {
        throw await giveBack(client, error, deadline)
      }
    } finally {
      deadline.end()
    }
  }

  return {
    /**
     * SQL expression that identifies the server process of a statement. Two have the same value only if a connection was opened in
     * between; see `statistics`.
     */
    backend: session.backend,

    /**
     * Runs one statement and returns its rows; `bigint` columns arrive as BigInt.
     *
     * @throws {StatementError} if no connection is available or no response arrives in time, if the server cannot serve now or rejects
     *   the statement, or if PostgreSQL warns about the commit, which may then be lost
     */
    query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[] = []) {
      return run<Row[]>((client) => {
        if (typeof statement !== 'string' && session.hasNames) return queryNamed(client, statement, values)
        return client.query<Row>(toText(statement), [...values]).then(({ rows }) => rows)
      })
    },

    /**
     * Runs a statement without parameters, or several in one message and one transaction, and calls `onRow`, which must not throw, with
     * each row as it arrives. The snapshot of a statement is taken after it got its locks. Throws what `query` throws; the time limit for
     * a response applies to each row.
     */
    readRows(text: string, onRow: (row: TextRow) => void): Promise<void> {
      const inOneTransaction = [...session.settings, text].join(';\n')
      const config: pg.QueryArrayConfig = { text: inOneTransaction, rowMode: 'array', types: asText }
      return run((client, onProgress) => {
        const query = new pg.Query<(string | null)[]>(config)
        query.on('row', (row) => {
          onProgress()
          onRow(row)
        })
        client.query(query)
        return new Promise((resolve, reject) => {
          query.on('end', () => resolve()).on('error', reject)
        })
      })
    },

    /** Discards all connections to the server, because a statement showed that it is read-only. Returns the error to throw. */
    discardReadOnly: () => server.discardReadOnly('rolledBack'),

    /** Returns the state of the pool. */
    statistics: () => ({
      /** Maximum connections. */
      size,
      /** Connections that run a statement or are being opened. */
      used: pool.totalCount - pool.idleCount,
      idle: pool.idleCount,
      /** Callers that wait for a connection. */
      waiting: pool.waitingCount,
      /** Connections opened since the pool was created. */
      opened,
    }),

    /** Waits for the statements in flight, then closes every connection. */
    close: () => pool.end(),
  }
}
