import { setTimeout } from 'node:timers/promises'
import { DatabaseConnection } from '../database-connection.ts'
import { isoTime } from '../iso-time.ts'
import { sessionConfig } from '../session.ts'

/** Shorter than each limit for a lock, so that the session that has it is known when the limit has passed. */
const CHECK_INTERVAL_MS = 400

/**
 * Describes what the session of the process $1 waits for, and the session in its way with the oldest transaction, of which a role may
 * not see everything. The process 0 is a prepared transaction. A session waits for a row by waiting for the transaction that has changed
 * or locked it, and meanwhile has a lock on the row's place.
 */
const FIND_WAIT = `
  SELECT clock_timestamp() - wanted.waitstart >= interval '2 seconds' AS "isLong", format('waiting for %s, which %s%s has',
    CASE
      WHEN wanted.locktype = 'advisory' THEN 'the advisory lock ' || (wanted.classid::bigint << 32 | wanted.objid::bigint)
      WHEN wanted.locktype = 'relation' THEN 'a lock on ' || wanted.relation::regclass
      WHEN place.relation IS NOT NULL THEN 'a row of ' || place.relation::regclass
      ELSE 'another transaction'
    END,
    CASE holder WHEN 0 THEN 'a prepared transaction (pg_prepared_xacts)' ELSE 'process ' || holder END,
    ' (' || nullif(concat_ws(', ', 'role ' || usename, nullif(application_name, ''), coalesce(
      'in a transaction since ' || ${isoTime('xact_start')}, 'connected since ' || ${isoTime('backend_start')}
    )), '') || ')') AS description
  FROM pg_locks AS wanted
    LEFT JOIN pg_locks AS place ON place.pid = wanted.pid AND place.locktype = 'tuple'
    CROSS JOIN unnest(pg_blocking_pids(wanted.pid)) AS holder
    LEFT JOIN pg_stat_activity AS session ON session.pid = holder
  WHERE wanted.pid = $1 AND NOT wanted.granted
  ORDER BY xact_start, holder LIMIT 1`

/**
 * Runs `work`, and calls `onWait` when the session of the process `pid` has waited for a lock for two seconds, or when `work` fails
 * meanwhile, as at the limit for the lock: once for each lock and session that has it. Names are as in the database. Watches over a
 * connection of its own; without one, nothing is reported.
 */
export async function watchingLocks<Result>(
  url: string,
  pid: number,
  onWait: (description: string) => void,
  work: () => Promise<Result>,
): Promise<Result> {
  const ended = new AbortController()
  const client = new DatabaseConnection(sessionConfig(url, '', 'cli'))
  let wait: string | undefined
  let reported: string | undefined

  const report = (): void => {
    if (wait !== undefined && wait !== reported) onWait(wait)
    reported = wait ?? reported
  }
  const watch = async (): Promise<void> => {
    await setTimeout(CHECK_INTERVAL_MS, undefined, ended)
    await client.connect()
    for (;;) {
      const [found] = (await client.query<{ isLong: boolean; description: string }>(FIND_WAIT, [pid])).rows
      wait = found?.description
      if (found?.isLong) report()
      await setTimeout(CHECK_INTERVAL_MS, undefined, ended)
    }
  }
  watch().catch(() => {})
  try {
    return await work()
  } catch (error) {
    report()
    throw error
  } finally {
    ended.abort()
    client.cut()
  }
}
