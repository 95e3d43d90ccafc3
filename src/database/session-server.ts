import pg from 'pg'
import { onlyRow } from './only-row.ts'
import { HAS_SETTINGS } from './session.ts'
import type { TimeLimits } from './time-limits.ts'

/** SQL condition for a read-only server: a standby, or one with `default_transaction_read_only`. */
export const IS_READ_ONLY = "(pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')"

/** SQL condition for a database with the extension Citus, which can keep tables on other servers. */
export const HAS_CITUS = "EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

/** The server that a session is connected to. */
export interface SessionServer {
  readonly isReadOnly: boolean
  readonly hasSettings: boolean
  /** Whether a commit of the role waits for a synchronous standby for longer than a statement may take. */
  readonly hasLateCommit: boolean
  /** That of the database cluster: a primary and its standbys have the same one. */
  readonly systemIdentifier: string | null
  /** Increases with each promotion (PostgreSQL manual, section 25.3.6). Null on a standby, or if the query is not allowed. */
  readonly timeline: number | null
  /** When the server was started, in Unix time. */
  readonly startedAt: string | null
}

/**
 * The name of the current WAL file starts with the timeline of a primary, as eight hexadecimal digits. The control file has the
 * timeline of the last checkpoint, which is outdated for a while after a promotion.
 */
const IDENTITY = `system_identifier::text AS "systemIdentifier",
  CASE WHEN NOT pg_is_in_recovery()
    THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline,
  extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt" FROM pg_control_system()`

const NO_IDENTITY = 'NULL AS "systemIdentifier", NULL AS timeline, NULL AS "startedAt"'

/** Asks which server a session is on, within the limit for a connection. Not every role or service allows to ask for its identity. */
export async function askServer(client: pg.ClientBase, limits: TimeLimits): Promise<SessionServer> {
  const ask = async (identity: string): Promise<SessionServer> => {
    const text = `SELECT ${IS_READ_ONLY} AS "isReadOnly", ${HAS_SETTINGS} AS "hasSettings",
      EXISTS (SELECT FROM pg_stat_activity WHERE usename = current_user AND wait_event = 'SyncRep'
        AND now() - query_start > interval '${limits.statement} ms') AS "hasLateCommit", ${identity}`
    const query = { text, query_timeout: limits.connect }
    return onlyRow((await client.query<SessionServer>(query)).rows)
  }
  return ask(IDENTITY).catch((error: unknown) => {
    if (!(error instanceof pg.DatabaseError)) throw error
    return ask(NO_IDENTITY)
  })
}
