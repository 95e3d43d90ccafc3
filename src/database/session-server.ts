import type { ClientBase } from 'pg'
import pg from 'pg'
import { isFatal } from './error-meaning.ts'
import { onlyRow } from './only-row.ts'
import { IS_READ_ONLY } from './server-status.ts'
import { HAS_SETTINGS } from './session.ts'

/** The server that a session is connected to. */
export interface SessionServer {
  readonly isStandby: boolean
  /** Whether transactions of this session cannot write: on a standby, or because of `default_transaction_read_only`. */
  readonly isReadOnly: boolean
  /** Whether the settings of `directSession` took effect. */
  readonly hasSettings: boolean
  /** The server process. Behind a connection pooler in transaction mode, later statements may run in others. */
  readonly pid: number
  /** The session's `synchronous_commit`. */
  readonly synchronousCommit: string
  /** Undefined on a standby, or if the role or the database service does not allow the query. */
  readonly identity: ServerIdentity | undefined
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

const STATE = `SELECT pg_is_in_recovery() AS "isStandby",
  ${IS_READ_ONLY} AS "isReadOnly",
  ${HAS_SETTINGS} AS "hasSettings",
  pg_backend_pid() AS pid,
  current_setting('synchronous_commit') AS "synchronousCommit"`

/**
 * SQL expression of a primary's timeline, as eight hexadecimal digits: the name of the current WAL file starts with it. The
 * control file has the timeline of the last checkpoint, which is outdated for a while after a promotion.
 */
const TIMELINE = 'left(pg_walfile_name(pg_current_wal_lsn()), 8)'

const STARTED_AT = 'extract(epoch FROM pg_postmaster_start_time())::text'

const STATE_AND_IDENTITY = `${STATE}, system_identifier::text AS "systemIdentifier",
  CASE WHEN NOT pg_is_in_recovery() THEN ${TIMELINE} END AS timeline,
  ${STARTED_AT} AS "startedAt"
  FROM pg_control_system()`

type StateRow = Omit<SessionServer, 'identity'>

interface IdentityRow extends StateRow {
  readonly systemIdentifier: string
  readonly timeline: string | null
  readonly startedAt: string
}

/**
 * Asks which server a session is on. If the server does not support the query for its identity, or the role lacks the
 * privilege, a second query asks for the rest.
 *
 * @param limitMs time limit of each query
 */
export async function askServer(client: ClientBase, limitMs: number): Promise<SessionServer> {
  try {
    const { systemIdentifier, timeline, startedAt, ...state } = await oneRow<IdentityRow>(
      client,
      STATE_AND_IDENTITY,
      limitMs,
    )
    const identity =
      timeline === null ? undefined : { systemIdentifier, timeline: Number.parseInt(timeline, 16), startedAt }
    return { ...state, identity }
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    return { ...(await oneRow<StateRow>(client, STATE, limitMs)), identity: undefined }
  }
}

async function oneRow<Row extends StateRow>(client: ClientBase, text: string, limitMs: number): Promise<Row> {
  const config = { text, query_timeout: limitMs }
  const { rows } = await client.query<Row>(config)
  return onlyRow(rows)
}
