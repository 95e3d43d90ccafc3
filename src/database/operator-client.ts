import pg from 'pg'
import type { StatementRunner } from './pool.ts'

const CONNECT_TIMEOUT_MS = 10_000

/** Creates a client for a command of the operators. It is not connected yet. */
export function operatorClient(url: string, answerTimeoutMs?: number): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    ...(answerTimeoutMs === undefined ? {} : { query_timeout: answerTimeoutMs }),
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
  })
  // If the connection breaks between two statements, the next one fails. Without a listener, the process would exit.
  client.on('error', () => {})
  return client
}

/** Runs statements on a client. */
export function statementRunner(client: pg.Client): StatementRunner {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
  }
}
