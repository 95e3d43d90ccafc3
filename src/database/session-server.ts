import type { ClientBase } from 'pg'
import pg from 'pg'
import type { SessionTarget } from './address.ts'
import { isFatal } from './failures.ts'

/** What a session says of the server that it is on. */
export interface SessionServer {
  readonly isStandby: boolean
  /** True where no transaction of this session can write: on a standby, or by `default_transaction_read_only`. */
  readonly isReadOnly: boolean
  /** The session's `synchronous_commit`. */
  readonly synchronousCommit: string
  /** Undefined on a standby, and where the role or the service may not ask for it. */
  readonly identity: ServerIdentity | undefined
}

/** What two sessions have in common only if they are on the same server. */
export interface ServerIdentity {
  /** Common to a primary and its standbys. */
  readonly systemIdentifier: string
  /** Counts the promotions (PostgreSQL manual, section 25.3.6). */
  readonly timeline: number
  /** In seconds of Unix time, as text. */
  readonly startedAt: string
}

const STATE = `SELECT pg_is_in_recovery() AS "isStandby",
  pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "isReadOnly",
  current_setting('synchronous_commit') AS "synchronousCommit"`

// The control file has the timeline of the last checkpoint, which after a promotion is the old one for a while; the name
// of the file that WAL is written to begins with the timeline itself.
const STATE_AND_IDENTITY = `${STATE}, system_identifier::text AS "systemIdentifier",
  CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline,
  extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt"
  FROM pg_control_system()`

interface StateRow {
  readonly isStandby: boolean
  readonly isReadOnly: boolean
  readonly synchronousCommit: string
}

interface IdentityRow extends StateRow {
  readonly systemIdentifier: string
  readonly timeline: string | null
  readonly startedAt: string
}

/**
 * Asks which server a session is on, in one statement. Services that only speak PostgreSQL's language, and roles without
 * the privilege, are asked a second time, for what every session may know.
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
  const [row] = rows
  if (row === undefined) throw new Error('PostgreSQL has answered without a row')
  return row
}

/** True where the session is on a server that `target_session_attrs` asks for. */
export function fits(server: SessionServer, target: SessionTarget): boolean {
  switch (target) {
    case 'read-write':
      return !server.isReadOnly
    case 'read-only':
      return server.isReadOnly
    case 'primary':
      return !server.isStandby
    case 'standby':
    case 'prefer-standby':
      return server.isStandby
    case 'any':
      return true
  }
}
