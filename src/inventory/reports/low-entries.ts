import type { StatementRunner } from '../../database/database.ts'
import { ENTRY_JSON } from '../entry/columns.ts'
import type { PetStatus } from '../entry/schemas.ts'

/** An entry with a low quantity. Its petId is a decimal int64. */
export interface LowEntry {
  readonly petId: string
  readonly quantity: number
  readonly status: PetStatus
  /** Its JSON text. */
  readonly json: string
}

/** Returns the entries with a quantity below `limit`, lowest quantity first. With `status`, only entries with that status. */
export function findLowEntries(
  database: StatementRunner,
  limit: number,
  status: PetStatus | undefined,
): Promise<LowEntry[]> {
  return database.query<LowEntry>(
    `SELECT pet_id::text AS "petId", quantity, status, ${ENTRY_JSON} AS json FROM inventory
     WHERE quantity < $1 AND ($2::text IS NULL OR status = $2) ORDER BY quantity, pet_id`,
    [limit, status ?? null],
  )
}
