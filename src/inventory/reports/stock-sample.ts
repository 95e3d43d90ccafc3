import { setTimeout } from 'node:timers/promises'
import type { Pool } from '../../database/pool.ts'
import { type StockLevel, stockLevels } from './stock-levels.ts'

/** Minimum time between the starts of two counts. A count takes at most a tenth of it, the time limit of a statement. */
const INTERVAL_MS = 60_000

/** How long a call waits for a count before it returns the previous one. */
const COUNT_TIMEOUT_MS = 500

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
