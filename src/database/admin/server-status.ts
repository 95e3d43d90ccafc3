import { onlyRow } from '../only-row.ts'
import type { StatementRunner } from '../statement.ts'

/** Returns the version of the server, and why sessions cannot write, if so. */
export async function serverStatus(database: StatementRunner) {
  const rows = await database.query<{ version: string; readOnly: 'standby' | 'setting' | null }>(
    `SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
            CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN current_setting('default_transaction_read_only') = 'on' THEN 'setting' END AS "readOnly"`,
  )
  return onlyRow(rows)
}

/** Lists the triggers of the inventory that do not fire: without those of the history, it has gaps. */
export async function disabledTriggers(database: StatementRunner): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `SELECT quote_ident(tgname) AS name FROM pg_trigger
     WHERE tgrelid = to_regclass('inventory') AND NOT tgisinternal AND tgenabled IN ('D', 'R') ORDER BY tgname`,
  )
  return rows.map(({ name }) => name)
}

const BACKUP_TIME = `SELECT substring(shobj_description(oid, 'pg_database') FROM '^Last backup: ([0-9TZ:.+-]+)$') AS time
  FROM pg_database WHERE datname = current_database()`

/**
 * Returns when the last recorded backup was made; undefined if none is recorded. The record is the comment of the database: every role
 * can read it, and no dump contains it.
 */
export async function lastBackup(database: StatementRunner): Promise<Date | undefined> {
  const [row] = await database.query<{ time: string | null }>(BACKUP_TIME)
  const time = new Date(row?.time ?? '')
  return Number.isNaN(time.getTime()) ? undefined : time
}
