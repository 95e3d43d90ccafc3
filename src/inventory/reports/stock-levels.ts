import { setTimeout } from 'node:timers/promises'
import type { Pool } from '../../database/pool.ts'
import type { StatementRunner } from '../../database/statement.ts'
import { type PetStatus, petStatuses } from '../entry/schemas.ts'

/** Minimum time between the starts of two counts. A count takes at most a tenth of it, the time limit of a statement. */
const INTERVAL_MS = 60_000

/** How long a call waits for a count before it returns the previous one. */
const COUNT_TIMEOUT_MS = 500

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

/**
 * Returns a function that counts the entries by status when it is called, at most once a minute, and returns the latest counts:
 * none before the first count, and after a failed one.
 */
export function stockSample(database: Pool): () => Promise<readonly StockLevel[]> {
  let latest: readonly StockLevel[] = []
  let counting: Promise<void> | undefined
  let startedAt = Number.NEGATIVE_INFINITY

  const count = async (): Promise<void> => {
    // The readiness check reports that the database cannot be read.
    latest = await stockLevels(database).catch(() => [])
  }

  return async () => {
    if (performance.now() - startedAt >= INTERVAL_MS) {
      startedAt = performance.now()
      counting = count()
    }
    await Promise.race([counting, setTimeout(COUNT_TIMEOUT_MS, undefined, { ref: false })])
    return latest
  }
}
