import type { Readable } from 'node:stream'
import { copyLines } from '../../database/copy-text.ts'
import { hasCause } from '../../database/error-meaning.ts'
import { onlyRow } from '../../database/only-row.ts'
import type { Transaction } from '../../database/transaction.ts'
import { ENTRY_FIELDS, ENTRY_JSON } from '../entry/columns.ts'

/** The formats of import and export. */
export type FileFormat = 'csv' | 'ndjson'

/**
 * Prevents TRUNCATE and rewrites of the table until the transaction ends. Call it first in a read-only transaction, whose first
 * query takes the snapshot: after a TRUNCATE or rewrite that commits later, the snapshot would see no rows (PostgreSQL manual,
 * section 13.6). LOCK TABLE takes no snapshot. Materialized views and foreign tables cannot be locked and stay unlocked.
 */
export async function lockEntries(transaction: Transaction): Promise<void> {
  await transaction.query('SAVEPOINT before_lock')
  try {
    await transaction.query('LOCK TABLE inventory IN ACCESS SHARE MODE')
  } catch (error) {
    if (!hasCause(error, 'wrongKind')) throw error
    await transaction.query('ROLLBACK TO SAVEPOINT before_lock')
  }
}

/** Returns the number of entries that the transaction sees. */
export async function countEntries(transaction: Transaction): Promise<number> {
  const rows = await transaction.query<{ count: string }>('SELECT count(*) AS count FROM inventory')
  return Number(onlyRow(rows).count)
}

/** Streams the whole inventory in ascending order of petId as the content of a file, from the snapshot of the transaction. */
export function exportEntries(transaction: Transaction, format: FileFormat): Readable {
  const ordered = 'FROM inventory ORDER BY pet_id'
  return transaction.copyOut(
    format === 'csv'
      ? `COPY (SELECT ${ENTRY_FIELDS} ${ordered}) TO STDOUT (FORMAT csv, HEADER)`
      : copyLines(`SELECT ${ENTRY_JSON} ${ordered}`),
  )
}
