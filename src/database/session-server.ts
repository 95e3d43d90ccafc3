import type { ClientBase } from 'pg'
import pg from 'pg'
import { isFatal } from './error-meaning.ts'
import { onlyRow } from './only-row.ts'
import { IS_READ_ONLY } from './server-status.ts'
import { HAS_SETTINGS } from './session.ts'

interface SessionState {
  readonly isStandby: boolean
  /** Whether transactions of this session cannot write: on a standby, or because of `default_transaction_read_only`. */
  readonly isReadOnly: boolean
  /** Whether the settings of `directSession` took effect. */
  readonly hasSettings: boolean
  /** The server process. Behind a connection pooler in transaction mode, later statements may run in others. */
  readonly pid: number
  /** The session's `synchronous_commit`. */
  readonly synchronousCommit: string
}

/** Identifies a run of a server. It is equal for two sessions only if they are on the same server. */
export interface ServerIdentity {
  /** Identifies the database cluster. A primary and its standbys have the same one. */
  readonly systemIdentifier: string
  /** Increases with each promotion (PostgreSQL manual, section 25.3.6). */
  readonly timeline: number
  /** When the server was started: Unix time in seconds, as text. */
  readonly startedAt: string
}

/** The server that a session is connected to. */
export interface SessionServer extends SessionState {
  /** Undefined on a standby, or if the role or the database service does not allow the query. */
  readonly identity: ServerIdentity | undefined
}

const STATE = `pg_is_in_recovery() AS "isStandby", ${IS_READ_ONLY} AS "isReadOnly", ${HAS_SETTINGS} AS "hasSettings",
  pg_backend_pid() AS pid, current_setting('synchronous_commit') AS "synchronousCommit"`

/**
 * The name of the current WAL file starts with the timeline of a primary, as eight hexadecimal digits. The control file has the
 * timeline of the last checkpoint, which is outdated for a while after a promotion.
 */
const IDENTITY = `system_identifier::text AS "systemIdentifier",
  CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
  extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt"`

interface StateAndIdentity extends SessionState, Omit<ServerIdentity, 'timeline'> {
  readonly timeline: string | null
}

/**
 * Asks which server a session is on. If the server does not support the query for its identity, or the role lacks the
 * privilege, a second query asks for the rest.
 *
 * @param limitMs time limit of each query
 */
export async function askServer(client: ClientBase, limitMs: number): Promise<SessionServer> {
  const ask = async <Row extends SessionState>(text: string): Promise<Row> =>
    onlyRow((await client.query<Row>({ text, ...{ query_timeout: limitMs } })).rows)
  try {
    const { systemIdentifier, timeline, startedAt, ...state } = await ask<StateAndIdentity>(
      `SELECT ${STATE}, ${IDENTITY} FROM pg_control_system()`,
    )
    if (timeline === null) return { ...state, identity: undefined }
    return { ...state, identity: { systemIdentifier, timeline: Number.parseInt(timeline, 16), startedAt } }
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    return { ...(await ask<SessionState>(`SELECT ${STATE}`)), identity: undefined }
  }
}
