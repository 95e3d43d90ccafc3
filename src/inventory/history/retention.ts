import type { Database, StatementRunner } from '../../database/database.ts'
import { onlyRow } from '../../database/only-row.ts'
import { isoTime } from '../../database/time.ts'

/** What the history holds. */
export interface HistorySize {
  readonly changes: number
  /** Size on the disk, with indexes. */
  readonly bytes: number
  /** When the oldest change was made; null if there is none. */
  readonly oldest: Date | null
}

/** Returns the size of the history, with PostgreSQL's estimate of its changes. Takes no longer for a long one. */
export function estimateHistory(database: StatementRunner): Promise<HistorySize> {
  return historySize(
    database,
    "(SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'inventory_history'::regclass)",
  )
}

/** Returns the size of the history. Counts its changes, which takes longer for a long one. */
export function countHistory(database: StatementRunner): Promise<HistorySize> {
  return historySize(database, '(SELECT count(*) FROM inventory_history)')
}

async function historySize(database: StatementRunner, count: string): Promise<HistorySize> {
  const rows = await database.query<{ changes: number; bytes: number; oldest: string | null }>(
    `SELECT ${count}::float8 AS changes, pg_total_relation_size('inventory_history')::float8 AS bytes,
            (SELECT ${isoTime('changed_at')} FROM inventory_history ORDER BY statement_id LIMIT 1) AS oldest`,
  )
  const { changes, bytes, oldest } = onlyRow(rows)
  return { changes, bytes, oldest: oldest === null ? null : new Date(oldest) }
}

/** Changes that one statement and one commit delete. */
const CHUNK_CHANGES = 10_000

/**
 * Deletes the changes that are older than `keep` seconds, oldest first, and yields their number after each chunk. A chunk is a
 * transaction of its own, so that what is deleted stays deleted if it is interrupted. Needs the owner of the tables.
 */
export async function* pruneHistory(database: Database, keep: number): AsyncGenerator<number> {
  // Newer changes can have smaller ids, as those of a long transaction. The sum keeps PostgreSQL from walking through the index.
  const bounds = await database.query<{ before: string; last: bigint | null }>(
    `SELECT before::text, max(statement_id + 0) AS last
     FROM (SELECT now() - make_interval(secs => $1) AS before) AS time
     LEFT JOIN inventory_history ON changed_at < before GROUP BY before`,
    [keep],
  )
  const { before, last } = onlyRow(bounds)
  const end = last ?? 0n
  for (let next = 0n; next <= end; ) {
    const rows: readonly { deleted: number; latest: bigint | null }[] = await database.query(
      `WITH chunk AS (
         SELECT ctid, statement_id, changed_at FROM inventory_history WHERE statement_id BETWEEN $1 AND $2
         ORDER BY statement_id LIMIT ${CHUNK_CHANGES}
       ), deleted AS (
         DELETE FROM inventory_history
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM chunk WHERE changed_at < $3::timestamptz))
         RETURNING 1
       )
       SELECT (SELECT count(*)::integer FROM deleted) AS deleted, max(statement_id) AS latest FROM chunk`,
      [next, end, before],
    )
    const { deleted, latest } = onlyRow(rows)
    yield deleted
    if (latest === null) return
    // The changes of one statement have one time, so those that are left with the latest id are not older either.
    next = deleted > 0 ? latest : latest + 1n
  }
}
