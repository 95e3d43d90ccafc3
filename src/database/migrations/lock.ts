import type { StatementRunner } from '../database.ts'
import { hasCause } from '../error-meaning.ts'
import { MigrationError } from './errors.ts'

/** How long to wait for other migrations of the same database. */
const WAIT_TIMEOUT_S = 60

/**
 * Takes node-pg-migrate's advisory lock until the end of the transaction. Its own lock would be released before the commit.
 *
 * @param notice called once with a line for the user if another session has the lock
 * @throws {MigrationError} if another session holds the lock for more than a minute
 */
export async function lockMigrations(
  database: StatementRunner,
  notice: (line: string) => void,
): Promise<void> {
  const { PG_MIGRATE_LOCK_ID } = await import('node-pg-migrate')
  const [row] = await database.query<{ isLocked: boolean }>(
    'SELECT pg_try_advisory_xact_lock($1) AS "isLocked"',
    [PG_MIGRATE_LOCK_ID],
  )
  if (row?.isLocked) return
  const [holder] = await database.query<{ pid: number }>(
    `SELECT pid FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32) + objid::bigint = $1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [PG_MIGRATE_LOCK_ID],
  )
  const pid = holder === undefined ? '' : `, as PID ${holder.pid}`
  notice(`Waiting for other migrations of this database${pid}.`)
  await database.query(`SET LOCAL lock_timeout = '${WAIT_TIMEOUT_S}s'`)
  try {
    await database.query('SELECT pg_advisory_xact_lock($1)', [PG_MIGRATE_LOCK_ID])
  } catch (error) {
    if (!hasCause(error, 'locked')) throw error
    throw new MigrationError(
      `Other migrations of this database ran for longer than ${WAIT_TIMEOUT_S} s${pid}; nothing was changed. Run it again when they have ended.`,
    )
  }
}
