import pg from 'pg'
import { type Connection, Connections } from './connections.ts'
import type { Database, Statement, Value } from './database.ts'
import { ConnectionFault, hasCause, isFatal, isUnavailable } from './error-meaning.ts'
import { DatabaseUnavailableError } from './errors.ts'
import type { DatabaseOptions } from './pool-options.ts'
import { PreparedStatement } from './prepared-statement.ts'
import { directSession, pooledSession } from './session.ts'

/** Opens a pool. It connects when a connection is first needed, so it does not fail if the database is down now. */
export function openDatabase(options: DatabaseOptions): Database {
  const { server, size, limits } = options
  const session = options.behindPooler ? pooledSession(limits) : directSession(limits, options.settings ?? {})
  const connections = new Connections(options, session)

  /** Returns the error to throw for a failed statement. Renews all connections if the server has become read-only. */
  const failureOf = (error: unknown, { generation }: Connection): unknown => {
    if (hasCause(error, 'readOnly') && generation === connections.generation) server?.refuse()
    return isUnavailable(error) ? new DatabaseUnavailableError(error) : error
  }

  /** Runs one statement on a connection. `work` sends it, and calls `onProgress` when a part of the response has arrived. */
  const run = async <Result>(
    work: (client: Connection, onProgress: () => void) => Promise<Result>,
  ): Promise<Result> => {
    const client = await connections.take().catch((error: unknown) => {
      throw new DatabaseUnavailableError(error)
    })
    client.commit.begin()
    let timer: NodeJS.Timeout | undefined
    const response = work(client, () => timer?.refresh())
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(lateResponse()), limits.answer)
    })
    try {
      const result = await Promise.race([response, timeout])
      // Otherwise, the response may come from a server that is no longer in use.
      if (client.generation !== connections.generation)
        throw new ConnectionFault('lost', 'the connections were renewed while the statement was under way')
      client.commit.check()
      client.release()
      return result
    } catch (error) {
      const failure = failureOf(error, client)
      client.release(isFatal(error))
      // Nothing has run: the type of a column has changed. A new connection prepares the statement again.
      if (hasCause(error, 'outdated')) return run(work)
      throw failure
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    backend: session.backend,

    query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly Value[] = []) {
      return run((client) => {
        if (typeof statement !== 'string' && session.hasNames)
          return new Promise<Row[]>((resolve, reject) => {
            client.query(new PreparedStatement(statement, values, client.descriptions, resolve, reject))
          })
        const text = typeof statement === 'string' ? statement : statement.text
        return client.query<Row>(text, [...values]).then(({ rows }) => rows)
      })
    },

    readRows(text, onRow) {
      const inOneTransaction = [READ_COMMITTED, ...session.limits, text].join('; ')
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

    refuseServer: () => new DatabaseUnavailableError(server?.refuse()),

    statistics: () => ({ size, ...connections.statistics() }),

    close: () => connections.close(),
  }
}

/**
 * At this level, a query takes its snapshot after it got its locks. With an earlier one, it sees no rows if TRUNCATE or a rewrite
 * of the table commits while it waits (PostgreSQL manual, section 13.6).
 */
const READ_COMMITTED = 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED'

const lateResponse = (): ConnectionFault => new ConnectionFault('late', 'PostgreSQL did not respond in time')

/** Leaves every value as the text that PostgreSQL sends. */
const asText: pg.CustomTypesConfig = { getTypeParser: () => (text: string) => text }
