import type { Database } from './database.ts'

const COMMENT =
  "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = current_database()"

/**
 * Returns when the last recorded backup of the database was made; undefined if none is recorded. The record is the comment of
 * the database: every role can read it without a grant, and no dump contains it.
 */
export async function lastBackup(database: Database): Promise<Date | undefined> {
  const [row] = await database.query<{ comment: string | null }>(COMMENT)
  const time = new Date(/^Last backup: (\S+)$/.exec(row?.comment ?? '')?.[1] ?? '')
  return Number.isNaN(time.getTime()) ? undefined : time
}
