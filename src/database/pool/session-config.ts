import pg from 'pg'
import { parseIntoClientConfig } from 'pg-connection-string'
import type { TimeLimits } from '../database.ts'

const INT8_OID = 20

/** What the sessions of a pool have in common. */
interface SessionOptions {
  readonly limits: TimeLimits
  readonly behindPooler: boolean
  readonly settings: Readonly<Record<string, string>>
}

/** How values of columns are read: `bigint` as BigInt. Set per pool, because pg.types.setTypeParser is for the whole process. */
export const resultTypes: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/**
 * Returns what the sessions of a pool are opened with. Call it when the pool is opened, because it also reads the certificate
 * files: if one were missing when a connection is opened, nothing could catch the error.
 *
 * @param url a `postgres://` address with one host
 */
export function sessionConfig(
  url: string,
  { limits, behindPooler, settings }: SessionOptions,
): pg.ClientConfig {
  const own = {
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    // At other levels, an update fails if another one has changed its row since the statement began.
    default_transaction_isolation: 'read\\ committed',
    // Otherwise, the role could suppress PostgreSQL's warning about a commit.
    client_min_messages: 'warning',
    ...settings,
  }
  const ownOptions = Object.entries(own).map(([name, value]) => `-c ${name}=${value}`)
  const { options: given = '', ...address } = parseIntoClientConfig(url)
  return {
    application_name: 'petstore-inventory',
    ...address,
    // PgBouncer rejects options. If a setting occurs twice, PostgreSQL uses the last one.
    options: behindPooler ? given : [...ownOptions, given].join(' '),
    keepAlive: true,
    types: resultTypes,
  }
}
