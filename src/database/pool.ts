import pg from 'pg'
import { type Connection, Connections } from './connections.ts'
import type { Database, Statement } from './database.ts'
import { hasCause, isFatal, isOutdatedStatement, isUnavailable } from './error-meaning.ts'
import { ConnectionFault, DatabaseUnavailableError } from './errors.ts'
import type { DatabaseOptions } from './pool-options.ts'
import { PreparedStatement } from './prepared-statement.ts'
import { hasCitus } from './server-status.ts'
import { directSession, pooledSession, resultTypes } from './session.ts'

/** How often it is asked whether a late statement still runs, unless the options say it. */
const LATE_CHECK_MS = 60_000

/** Opens a pool. It connects when a connection is first needed, so it does not fail if the database is down now. */
export function openDatabase(options: DatabaseOptions): Database {
  const { server, size, limits, isRunning } = options
  const session = options.behindPooler ? pooledSession(limits) : directSession(limits, options.settings ?? {})
  const connections = new Connections(options, session)
  const late = new Set<pg.PoolClient>()
  let failures = 0

  const unavailable = (cause: unknown): DatabaseUnavailableError =>
    new DatabaseUnavailableError(cause, () => {
      failures++
    })

  const take = (): Promise<Connection> =>
    connections.take().catch((error: unknown) => {
      throw unavailable(error)
    })

  /** Throws if the response may come from a server that is no longer in use. */
  const checkGeneration = ({ generation }: Connection): void => {
    if (generation !== connections.generation)
      throw new ConnectionFault('lost', 'the connections were renewed while the statement was under way')
  }

  /** Returns the error to throw for a failed statement. Renews all connections if the server has become read-only. */
  const failureOf = async (error: unknown, { client, generation }: Connection): Promise<unknown> => {
    if (hasCause(error, 'readOnly') && generation === connections.generation)
      server?.renew('the server has become read-only')
    if (isUnavailable(error)) return unavailable(error)
    // Citus reports some failures of its workers as internal errors, although the statement is correct.
    const query = <Row extends pg.QueryResultRow>(text: string): Promise<Row[]> =>
      inTime(send(client, text, []))
    const isOfWorker = hasCause(error, 'internal') && (await hasCitus({ query }).catch(() => false))
    return isOfWorker ? unavailable(error) : error
  }

  const textOf = (statement: Statement): string =>
    typeof statement === 'string' ? statement : statement.text

  const send = <Row extends pg.QueryResultRow>(
    client: pg.Client,
    statement: Statement,
    values: readonly unknown[],
  ): Promise<Row[]> => {
    const text = textOf(statement)
    const texts = textsOf(values)
    if (typeof statement === 'string' || texts === undefined)
      return client.query<Row>({ text, values: [...values] }).then(({ rows }) => rows)
    const name = session.hasNames ? statement.name : ''
    return new Promise((resolve, reject) => {
      client.query(new PreparedStatement({ name, text }, texts, resultTypes, resolve, reject))
    })
  }

  /**
   * Returns one text, which PostgreSQL runs as one transaction. At this level, a query takes its snapshot after it got its locks.
   * With an earlier one, it sees no rows if TRUNCATE or a rewrite of the table commits while it waits (PostgreSQL manual, 13.6).
   */
  const inOneTransaction = (query: string): string =>
    ['SET TRANSACTION ISOLATION LEVEL READ COMMITTED', ...session.limits, query].join('; ')

  const inTime = <Result>(response: Promise<Result>): Promise<Result> => {
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(lateResponse()), limits.answer)
    })
    return Promise.race([response, timeout]).finally(() => clearTimeout(timer))
  }

  const releaseWhenAnswered = ({ client, pid }: Connection, response: Promise<unknown>): void => {
    const check = async (): Promise<void> => {
      if (!(await isRunning?.(pid))) client.connection.stream.destroy()
    }
    const timer = setInterval(() => check().catch(() => {}), options.lateCheckMs ?? LATE_CHECK_MS).unref()
    late.add(client)
    void response
      .then(() => false, isFatal)
      .then((isBroken) => {
        clearInterval(timer)
        late.delete(client)
        client.release(isBroken)
      })
  }

  return {
    backend: session.backend,

    async query<Row extends pg.QueryResultRow>(statement: Statement, values: readonly unknown[] = []) {
      for (;;) {
        const connection = await take()
        const { client, commit } = connection
        commit.begin()
        const response = send<Row>(client, statement, values)
        try {
          const rows = await inTime(response)
          checkGeneration(connection)
          if (commit.warning !== undefined) throw commit.warning
          client.release()
          return rows
        } catch (error) {
          // Nothing has run: the type of a column has changed. A new connection parses the statement again.
          if (isOutdatedStatement(error)) {
            client.release(true)
            continue
          }
          if (isRunning !== undefined && hasCause(error, 'late')) {
            releaseWhenAnswered(connection, response)
            throw unavailable(error)
          }
          const failure = await failureOf(error, connection)
          client.release(isFatal(error))
          throw failure
        }
      }
    },

    async readRows(statement, onRow) {
      const connection = await take()
      const { client } = connection
      let timer: NodeJS.Timeout | undefined
      let isBroken = false
      try {
        await new Promise<void>((resolve, reject) => {
          timer = setTimeout(() => reject(lateResponse()), limits.answer)
          const isNamed = typeof statement !== 'string' && session.hasNames
          const text = isNamed ? statement : { text: inOneTransaction(textOf(statement)) }
          const config: pg.QueryArrayConfig = { ...text, rowMode: 'array', types: asText }
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
      const error = new ConnectionFault('readOnly', 'the server has become read-only')
      server?.renew(error.message)
      return unavailable(error)
    },

    generation: () => connections.generation,

    statistics: () => ({ size, failures, ...connections.statistics() }),

    close() {
      for (const { connection } of late) connection.stream.destroy()
      return connections.close()
    },
  }
}

const lateResponse = (): ConnectionFault => new ConnectionFault('late', 'PostgreSQL did not respond in time')

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
