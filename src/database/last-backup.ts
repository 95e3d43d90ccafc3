import type { Database } from './database.ts'

const TIME = `SELECT substring(shobj_description(oid, 'pg_database') FROM '^Last backup: ([0-9TZ:.+-]+)$') AS time
  FROM pg_database WHERE datname = current_database()`

/**
 * Returns when the last recorded backup of the database was made; undefined if none is recorded. The record is the comment of
 * the database: every role can read it without a grant, and no dump contains it.
 */
export async function lastBackup(database: Database): Promise<Date | undefined> {
  const [row] = await database.query<{ time: string | null }>(TIME)
  const time = new Date(row?.time ?? '')
  return Number.isNaN(time.getTime()) ? undefined : time
}
