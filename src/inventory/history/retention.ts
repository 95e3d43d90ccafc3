import { onlyRow } from '../../database/only-row.ts'
import type { StatementRunner } from '../../database/statement.ts'

/** Maximum changes of each partition that one statement and one commit delete. */
const BATCH_CHANGES = 10_000

/**
 * Deletes the changes that are older than an interval of PostgreSQL, in the order of their statements, and yields their number after each
 * batch. Needs the owner of the tables.
 *
 * @param database runs each statement in a transaction of its own, so that what is deleted stays deleted if it is interrupted
 */
export async function* pruneHistory(database: StatementRunner, keep: string): AsyncGenerator<number> {
  const isOld = 'change.changed_at < now() - $1::interval'
  // Newer changes can have smaller ids, as those of a long transaction. The sum keeps PostgreSQL from walking through the index.
  const { last } = onlyRow(
    await database.query<{ last: bigint | null }>(
      `SELECT max(change.statement_id + 0) AS last FROM inventory_history AS change WHERE ${isOld}`,
      [keep],
    ),
  )
  let first: bigint | null = 0n
  while (first !== null) {
    // The index still has the deleted changes before the first one. Partitions, and tables that inherit, have the same ctids for other
    // changes, which may be newer.
    const rows: readonly { deleted: number; latest: bigint | null }[] = await database.query(
      `WITH batch AS MATERIALIZED (
         SELECT change.ctid AS location, change.statement_id FROM inventory_history AS change
         WHERE change.statement_id BETWEEN $2 AND $3 AND ${isOld}
         ORDER BY change.statement_id LIMIT ${BATCH_CHANGES}
       ), deleted AS (
         DELETE FROM inventory_history AS change
         WHERE change.ctid = ANY (ARRAY(SELECT batch.location FROM batch)) AND ${isOld}
         RETURNING 1
       )
       SELECT (SELECT count(*)::integer FROM deleted) AS deleted, (SELECT max(batch.statement_id) FROM batch) AS latest`,
      [keep, first, last],
    )
    const { deleted, latest } = onlyRow(rows)
    yield deleted
    first = deleted > 0 ? latest : null
  }
}
