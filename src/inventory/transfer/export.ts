import type { Readable } from 'node:stream'
import type { Transaction } from '../../database/admin/transaction.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'

/**
 * Streams the whole inventory as CSV in ascending order of petId. It must be the first statement of a read-only transaction: it locks
 * the table before the snapshot is taken, because after a TRUNCATE or rewrite that commits later, the snapshot would see no rows
 * (PostgreSQL manual, section 13.6).
 */
export async function exportEntries(transaction: Transaction): Promise<Readable> {
  await transaction.query('LOCK TABLE inventory IN ACCESS SHARE MODE')
  return transaction.copyOut(
    `COPY (SELECT ${ENTRY_FIELDS} FROM inventory AS entry ORDER BY entry.pet_id) TO STDOUT (FORMAT csv, HEADER)`,
  )
}
