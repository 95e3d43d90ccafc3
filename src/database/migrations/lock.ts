import { setTimeout as sleep } from 'node:timers/promises'
import type { StatementRunner } from '../database.ts'
import { MigrationsRunningError } from './errors.ts'

/** How long to wait for other migrations of the same database, and the interval between two attempts. */
const WAIT_TIMEOUT_MS = 60_000
const WAIT_INTERVAL_MS = 250

/**
 * Takes node-pg-migrate's advisory lock for the session. Polls for the lock, because a statement that waits for it keeps its
 * snapshot, and `CREATE INDEX CONCURRENTLY` waits for all older snapshots: the two sessions would deadlock.
 *
 * @param notice called once with a line for the user if another session has the lock
 * @throws {MigrationsRunningError} if another session holds the lock for more than a minute
 */
export async function lockMigrations(
  database: StatementRunner,
  notice: (line: string) => void,
): Promise<void> {
  const end = performance.now() + WAIT_TIMEOUT_MS
  for (let isFirst = true; !(await tryLockMigrations(database)); isFirst = false) {
    const pid = await migrationsPid(database)
    if (performance.now() > end) throw new MigrationsRunningError(pid, WAIT_TIMEOUT_MS)
    if (isFirst && pid !== undefined) notice(`Waiting for other migrations of this database, as PID ${pid}.`)
    await sleep(WAIT_INTERVAL_MS)
  }
}

/** Takes the lock if it is free, and returns whether it did. */
export async function tryLockMigrations(database: StatementRunner): Promise<boolean> {
  const { PG_MIGRATE_LOCK_ID } = await import('node-pg-migrate')
  const [row] = await database.query<{ isLocked: boolean }>('SELECT pg_try_advisory_lock($1) AS "isLocked"', [
    PG_MIGRATE_LOCK_ID,
  ])
  return row?.isLocked === true
}

/** Returns the process ID of the session that holds the lock for this database; undefined if it is free. */
export async function migrationsPid(database: StatementRunner): Promise<number | undefined> {
  const { PG_MIGRATE_LOCK_ID } = await import('node-pg-migrate')
  const [row] = await database.query<{ pid: number }>(
    `SELECT pid FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32) + objid::bigint = $1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [PG_MIGRATE_LOCK_ID],
  )
  return row?.pid
}
