import { onlyRow } from '../../database/only-row.ts'
import type { StatementRunner } from '../../database/statement.ts'

/** Changes that one statement and one commit delete. */
const CHUNK_CHANGES = 10_000

/**
 * Deletes the changes that are older than `keep` seconds, in the order of their statements, and yields their number after each
 * chunk. Needs the owner of the tables.
 *
 * @param database runs each statement in a transaction of its own, so that what is deleted stays deleted if it is interrupted
 */
export async function* pruneHistory(database: StatementRunner, keep: number): AsyncGenerator<number> {
  const isOld = 'changed_at < now() - make_interval(secs => $1)'
  // Newer changes can have smaller ids, as those of a long transaction. The sum keeps PostgreSQL from walking through the index.
  const { last } = onlyRow(
    await database.query<{ last: bigint | null }>(
      `SELECT max(statement_id + 0) AS last FROM inventory_history WHERE ${isOld}`,
      [keep],
    ),
  )
  let first: bigint | null = 0n
  while (first !== null) {
    // The index still has the deleted changes before the first one.
    const rows: readonly { deleted: number; latest: bigint | null }[] = await database.query(
      `WITH deleted AS (
         DELETE FROM inventory_history WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM inventory_history WHERE statement_id BETWEEN $2 AND $3 AND ${isOld}
           ORDER BY statement_id LIMIT ${CHUNK_CHANGES}
         )) RETURNING statement_id
       )
       SELECT count(*)::integer AS deleted, max(statement_id) AS latest FROM deleted`,
      [keep, first, last],
    )
    const { deleted, latest } = onlyRow(rows)
    yield deleted
    first = latest
  }
}
