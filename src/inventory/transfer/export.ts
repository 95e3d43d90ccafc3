import type { Readable } from 'node:stream'
import { hasCause } from '../../database/error-meaning.ts'
import { onlyRow } from '../../database/only-row.ts'
import type { Transaction } from '../../database/transaction.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'

/** Returns the number of entries that the transaction sees. */
export async function countEntries(transaction: Transaction): Promise<number> {
  const rows = await transaction.query<{ count: string }>('SELECT count(*) AS count FROM inventory')
  return Number(onlyRow(rows).count)
}

/**
 * Streams the whole inventory as CSV in ascending order of petId. It must be the first statement of a read-only transaction: it locks
 * the table before the snapshot is taken, because after a TRUNCATE or rewrite that commits later, the snapshot would see no rows
 * (PostgreSQL manual, section 13.6). Materialized views and foreign tables cannot be locked and stay unlocked.
 */
export async function exportEntries(transaction: Transaction): Promise<Readable> {
  await transaction.query('SAVEPOINT before_lock')
  try {
    await transaction.query('LOCK TABLE inventory IN ACCESS SHARE MODE')
  } catch (error) {
    if (!hasCause(error, 'wrongKind')) throw error
    await transaction.query('ROLLBACK TO SAVEPOINT before_lock')
  }
  return transaction.copyOut(
    `COPY (SELECT ${ENTRY_FIELDS} FROM inventory ORDER BY pet_id) TO STDOUT (FORMAT csv, HEADER)`,
  )
}
