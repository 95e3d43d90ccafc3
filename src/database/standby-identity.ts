import pg, { type ClientBase } from 'pg'
import { isFatal } from './failures.ts'
import { onlyRow } from './only-row.ts'
import type { ServerIdentity } from './session-server.ts'
import { StandbyError, type StandbyProblem } from './standby-problem.ts'

/** Identity of a standby, to compare with the identity of the primary. */
export interface StandbyIdentity {
  readonly isStandby: boolean
  readonly systemIdentifier: string
  /** The newest timeline that the server is known to have replayed. Its current timeline may be newer. */
  readonly timeline: number
}

/**
 * In recovery, PostgreSQL does not report its current timeline. The control file has the timelines of the last restartpoint
 * and of the minimum recovery point. The WAL receiver's timeline is newer, but visible only to roles that may read all
 * statistics (`pg_read_all_stats`).
 */
const STANDBY_IDENTITY = `SELECT pg_is_in_recovery() AS "isStandby", system_identifier::text AS "systemIdentifier",
  greatest(timeline_id, min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) AS timeline
  FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()`

/**
 * Returns the identity of the server that the client is connected to; waits at most `limitMs`.
 *
 * @throws {StandbyError} if the role may not run the functions, or the server is not PostgreSQL and lacks them
 */
export async function askStandby(client: ClientBase, limitMs: number): Promise<StandbyIdentity> {
  const config = { text: STANDBY_IDENTITY, query_timeout: limitMs }
  try {
    const { rows } = await client.query<StandbyIdentity>(config)
    return onlyRow(rows)
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    throw new StandbyError('unverified', { cause: error })
  }
}

/** Returns why the server is not a standby of the primary, or undefined if it is one. */
export function problemOf(
  standby: StandbyIdentity,
  primary: ServerIdentity | undefined,
): StandbyProblem | undefined {
  if (!standby.isStandby) return 'not_standby'
  if (primary === undefined) return 'unverified'
  if (standby.systemIdentifier !== primary.systemIdentifier) return 'other_cluster'
  return standby.timeline === primary.timeline ? undefined : 'other_timeline'
}
