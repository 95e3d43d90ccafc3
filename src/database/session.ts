import pg from 'pg'
import { parseAddress } from './address.ts'
import type { TimeLimits } from './time-limits.ts'

const INT8_OID = 20

/** How values of columns are read: `bigint` as BigInt. Set per pool, because pg.types.setTypeParser is for the whole process. */
export const resultTypes: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8_OID ? BigInt : pg.types.getTypeParser(oid, format)),
}

/** A parameter of our own. PostgreSQL takes all options or none. */
const MARKER = 'inventory.session'

/** SQL condition for a session whose settings took effect. A pooler may ignore them without an error. */
export const HAS_SETTINGS = `coalesce(current_setting('${MARKER}', true), '') = 'set'`

/**
 * Returns how sessions of the server itself are used, with further settings: their options in the startup message, whether statements
 * have names, so that each is parsed once, and an SQL expression that identifies the server process while a connection is open.
 */
export function directSession(limits: TimeLimits, settings: Readonly<Record<string, string>>) {
  const all = {
    [MARKER]: 'set',
    lock_timeout: limits.lock,
    statement_timeout: limits.statement,
    idle_in_transaction_session_timeout: limits.statement,
    // At other levels, an update fails if another one has changed its row since the statement began. A query takes its snapshot before
    // it gets its locks, so it sees no rows if TRUNCATE commits while it waits (PostgreSQL manual, section 13.6).
    default_transaction_isolation: 'read\\ committed',
    // The role must not suppress PostgreSQL's warning about a commit.
    client_min_messages: 'warning',
    // An error, rather than rows that a policy hides.
    row_security: 'off',
    ...settings,
  }
  const options = Object.entries(all).map(([name, value]) => `-c ${name}=${value}`)
  return { options: options.join(' '), settings: [], hasNames: true, backend: 'pg_backend_pid()' }
}

/**
 * Returns how sessions of a connection pooler in transaction mode, such as PgBouncer, are used. Each transaction may run in another
 * server process, which other clients use, too: it may have parsed another statement of the same name, and a setting would affect
 * the others. PgBouncer rejects options. The role has to have the time limits of single statements.
 */
export function pooledSession(limits: TimeLimits) {
  return {
    options: '',
    // For the beginning of a transaction.
    settings: [
      'SET TRANSACTION ISOLATION LEVEL READ COMMITTED',
      `SET LOCAL lock_timeout = ${limits.lock}`,
      `SET LOCAL statement_timeout = ${limits.statement}`,
    ],
    hasNames: false,
    // The id of a process may be used again. This expression takes PostgreSQL as long as the rest of a list's validator.
    backend:
      "concat_ws(' ', pg_backend_pid(), (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())))",
  }
}

/** Returns what sessions of an address are opened with. Throws what `parseAddress` throws. */
export function sessionConfig(url: string, options: string, program = 'server'): pg.ClientConfig {
  const { config } = parseAddress(url)
  return {
    ...config,
    application_name: `petstore-inventory ${program}`,
    // If a setting occurs twice, PostgreSQL uses the last one.
    options: [config.options, options].filter(Boolean).join(' '),
    keepAlive: true,
    // Networks forget an idle connection: Azure after 4 minutes, AWS after 6.
    keepAliveInitialDelayMillis: 60_000,
    types: resultTypes,
  }
}
