import { setTimeout as sleep } from 'node:timers/promises'
import { PG_MIGRATE_LOCK_ID } from 'node-pg-migrate'
import { MigrationsRunningError } from './migration-errors.ts'
import type { StatementRunner } from './pool.ts'

/** How long to wait for other migrations of the same database, and how often to look, in milliseconds. */
const WAIT_TIMEOUT_MS = 60_000
const WAIT_INTERVAL_MS = 250

/**
 * Takes node-pg-migrate's advisory lock for the session. It asks again and again instead of waiting inside PostgreSQL,
 * because a waiting statement keeps its snapshot, `CREATE INDEX CONCURRENTLY` waits for all older snapshots, and the two
 * would be a deadlock.
 *
 * @throws {MigrationsRunningError} where another session holds it for longer than a minute
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

/** Takes the lock if nobody has it. */
export async function tryLockMigrations(database: StatementRunner): Promise<boolean> {
  const [row] = await database.query<{ isLocked: boolean }>('SELECT pg_try_advisory_lock($1) AS "isLocked"', [
    PG_MIGRATE_LOCK_ID,
  ])
  return row?.isLocked === true
}

/** The session that runs migrations of this database now; undefined where none does. */
export async function migrationsPid(database: StatementRunner): Promise<number | undefined> {
  const [row] = await database.query<{ pid: number }>(
    `SELECT pid FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32) + objid::bigint = $1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [PG_MIGRATE_LOCK_ID],
  )
  return row?.pid
}
