import type { StatementRunner } from '../../database/statement.ts'
import { type PetStatus, petStatuses } from '../entry/schemas.ts'

/** The entries of one status. */
export interface StockLevel {
  readonly status: PetStatus
  readonly entries: number
  /** Entries with a quantity of 0. */
  readonly outOfStock: number
}

const STOCK_LEVELS = `
  SELECT entry.status, count(*)::integer AS entries, (count(*) FILTER (WHERE entry.quantity = 0))::integer AS "outOfStock"
  FROM inventory AS entry GROUP BY entry.status`

/** Counts the entries of each status. */
export async function stockLevels(database: StatementRunner): Promise<StockLevel[]> {
  const levels = await database.query<StockLevel>(STOCK_LEVELS)
  return petStatuses.map(
    (status) => levels.find((level) => level.status === status) ?? { status, entries: 0, outOfStock: 0 },
  )
}
