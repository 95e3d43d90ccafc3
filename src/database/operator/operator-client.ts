import pg from 'pg'
import type { StatementRunner } from '../database.ts'
import { DatabaseUnavailableError } from '../errors/errors.ts'
import { isUnavailable } from '../errors/failures.ts'

const CONNECT_TIMEOUT_MS = 10_000

/** Creates a client for a command of the operators. It is not connected yet. `config` takes precedence over the defaults. */
export function operatorClient(url: string, config: pg.ClientConfig = {}): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    ...config,
  })
  // If the connection breaks between two statements, the next one fails. Without a listener, the process would exit.
  client.on('error', () => {})
  return client
}

/** @throws {DatabaseUnavailableError} if the server cannot be reached or refuses the connection */
export async function connect(client: pg.Client): Promise<void> {
  try {
    await client.connect()
  } catch (error) {
    throw new DatabaseUnavailableError(error)
  }
}

/**
 * Returns a DatabaseUnavailableError if a session failed because of the server or the connection. Returns any other error
 * unchanged, such as one for an invalid file.
 *
 * @param lost the error with which the connection was lost, if it was
 */
export function outageOf(error: unknown, lost: Error | undefined): unknown {
  if (lost !== undefined) return new DatabaseUnavailableError(lost)
  const isOutage = error instanceof pg.DatabaseError ? isUnavailable(error) : isReadTimeout(error)
  return isOutage ? new DatabaseUnavailableError(error) : error
}

/** Whether PostgreSQL has not responded within `query_timeout`. pg's error has no code. */
function isReadTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}

/** Runs statements on a client. */
export function statementRunner(client: pg.Client): StatementRunner {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
  }
}
