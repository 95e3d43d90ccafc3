import { setTimeout } from 'node:timers/promises'
import { hasCause } from '../causes.ts'
import { DatabaseConnection } from '../database-connection.ts'
import { sessionConfig } from '../session.ts'
import { isoTime } from '../time.ts'

/** How long a session may wait for a lock without a word. */
const REPORT_AFTER_MS = 2000

/** Shorter than each limit for a lock, so that the session that has it is known when the limit has passed. */
const CHECK_INTERVAL_MS = 400

/** A lock that a session waits for, and the session that has it. */
interface LockWait {
  readonly lock: string
  readonly pid: number
  /** The next three are null if the role may not see them. */
  readonly role: string | null
  readonly program: string | null
  readonly since: string | null
  readonly others: number
}

/**
 * Finds what the session of the process $1 waits for, if it does. Of the sessions in its way, the one with the oldest transaction. One
 * that has ended meanwhile is none; the process 0 is a prepared transaction. A session waits for a row by waiting for the transaction
 * that has changed or locked it, and meanwhile has a lock on the row's place.
 */
const FIND_WAIT = `
  WITH waiting AS MATERIALIZED (
    SELECT pid, pg_blocking_pids(pid) AS holders FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'
  )
  SELECT CASE
      WHEN locktype = 'advisory' THEN 'the advisory lock ' || (classid::bigint << 32 | objid::bigint)
      WHEN locktype = 'relation' THEN 'a lock on ' || relation::regclass
      WHEN place IS NOT NULL THEN 'a row of ' || place::regclass
      ELSE 'another transaction'
    END AS lock,
    holder AS pid, usename::text AS role, nullif(application_name, '') AS program,
    coalesce('in a transaction since ' || ${isoTime('xact_start')}, 'connected since ' || ${isoTime('backend_start')}) AS since,
    cardinality(holders) - 1 AS others
  FROM waiting
    CROSS JOIN LATERAL (SELECT * FROM pg_locks WHERE pid = waiting.pid AND NOT granted LIMIT 1) AS wanted
    LEFT JOIN LATERAL (
      SELECT relation AS place FROM pg_locks WHERE pid = waiting.pid AND locktype = 'tuple' LIMIT 1
    ) AS tuple ON true
    CROSS JOIN unnest(holders) AS holder LEFT JOIN pg_stat_activity ON pg_stat_activity.pid = holder
  ORDER BY xact_start, holder LIMIT 1`

/**
 * Watches whether a session waits for a lock, over a connection of its own, and calls `onWait` once for each session that has been
 * in its way for two seconds. The description says what it waits for, and who has that; names in it are as they are in the database.
 * Without another connection, for example because the role may open no more, nothing is reported.
 *
 * @param url the address of the database of the session
 * @param pid the session's process
 */
export function watchLocks(url: string, pid: number, onWait: (description: string) => void) {
  const ended = new AbortController()
  const client = new DatabaseConnection(sessionConfig(url, '', 'cli'))
  let wait: LockWait | undefined
  let startedAt = 0
  let isReported = false

  const report = (): void => {
    if (wait !== undefined && !isReported) onWait(describe(wait))
    isReported = true
  }
  const watch = async (): Promise<void> => {
    await setTimeout(CHECK_INTERVAL_MS, undefined, ended)
    await client.connect()
    for (;;) {
      const found: LockWait | undefined = (await client.query<LockWait>(FIND_WAIT, [pid])).rows[0]
      if (found?.lock !== wait?.lock || found?.pid !== wait?.pid) {
        startedAt = performance.now()
        isReported = false
      }
      wait = found
      if (performance.now() - startedAt >= REPORT_AFTER_MS) report()
      await setTimeout(CHECK_INTERVAL_MS, undefined, ended)
    }
  }
  watch().catch(() => {})

  return {
    /** Reports the wait, unless it is reported, if a statement has failed because the limit for its lock has passed. */
    onError(error: unknown): void {
      const causes = [error, error instanceof Error && error.cause]
      if (causes.some((cause) => hasCause(cause, 'locked'))) report()
    },
    /** Ends the watch and its connection at once. */
    stop(): void {
      ended.abort()
      client.cut()
    },
  }
}

function describe({ lock, pid, role, program, since, others }: LockWait): string {
  const session = pid === 0 ? 'a prepared transaction (pg_prepared_xacts)' : `process ${pid}`
  const details = [role && `role ${role}`, program, since].filter(Boolean).join(', ')
  const more = others > 0 ? ` and ${others} more` : ''
  return `waiting for ${lock}, which ${session}${details && ` (${details})`}${more} ${others > 0 ? 'have' : 'has'}`
}
