import type { StatementRunner } from '../../database/database.ts'
import { onlyRow } from '../../database/only-row.ts'
import { parseOptionalTime, timeText } from '../../database/time.ts'

/** What the history holds. */
export interface HistorySize {
  /** PostgreSQL's estimate of the number of changes. */
  readonly changes: number
  /** Size on the disk, with indexes. */
  readonly bytes: number
  /** When the oldest change was made; null if there is none. */
  readonly oldest: Date | null
}

/** Returns the size of the history, which takes no longer for a long one. */
export async function historySize(database: StatementRunner): Promise<HistorySize> {
  const rows = await database.query<{ changes: number; bytes: number; oldest: string | null }>(
    `SELECT greatest(reltuples, 0)::float8 AS changes, pg_total_relation_size(oid)::float8 AS bytes,
            (SELECT ${timeText('changed_at')} FROM inventory_history ORDER BY statement_id LIMIT 1) AS oldest
     FROM pg_class WHERE oid = 'inventory_history'::regclass`,
  )
  const { changes, bytes, oldest } = onlyRow(rows)
  return { changes, bytes, oldest: parseOptionalTime(oldest) }
}

/** Changes that one statement and one commit delete. */
const CHUNK_CHANGES = 10_000

/**
 * Deletes the changes that are older than `keep` seconds, oldest first, and returns their number. Each chunk is a transaction of
 * its own, so that what is deleted stays deleted if it is interrupted. Needs the owner of the tables.
 */
export async function pruneHistory(database: StatementRunner, keep: number): Promise<number> {
  let pruned = 0
  for (let last: string | null = '0'; last !== null; ) {
    const rows: readonly { count: number; last: string | null }[] = await database.query(
      `WITH oldest AS (
         SELECT ctid, changed_at FROM inventory_history WHERE statement_id >= $1::bigint
         ORDER BY statement_id LIMIT ${CHUNK_CHANGES}
       ), pruned AS (
         DELETE FROM inventory_history
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM oldest WHERE changed_at < now() - make_interval(secs => $2)))
         RETURNING statement_id
       )
       SELECT count(*)::integer AS count, max(statement_id)::text AS last FROM pruned`,
      [last, keep],
    )
    const chunk = onlyRow(rows)
    pruned += chunk.count
    // Later ones are newer, apart from those that were being made at the same time.
    last = chunk.last
  }
  return pruned
}
