import { setTimeout } from 'node:timers/promises'
import type { Database } from '../../database/database.ts'
import { type StockLevel, stockLevels } from './stock-levels.ts'

/** Minimum time between the starts of two counts. */
const MIN_INTERVAL_MS = 60_000

/** A slow count is repeated after this multiple of its duration at the earliest. */
const PAUSE_FACTOR = 10

/** How long `read` waits for a count before it returns the previous one. */
const COUNT_TIMEOUT_MS = 500

/** Counts the entries by status when `read` is called, at most once a minute and for at most a tenth of the time. */
export class StockSample {
  readonly #database: Database
  #latest: readonly StockLevel[] = []
  #running: Promise<void> | undefined
  #nextStart = Number.NEGATIVE_INFINITY

  constructor(database: Database) {
    this.#database = database
  }

  /** Returns the latest counts, by status; empty before the first count and after a failed one. */
  async read(): Promise<readonly StockLevel[]> {
    if (this.#running === undefined && performance.now() >= this.#nextStart) {
      this.#running = this.#refresh().finally(() => {
        this.#running = undefined
      })
    }
    await Promise.race([this.#running, setTimeout(COUNT_TIMEOUT_MS, undefined, { ref: false })])
    return this.#latest
  }

  async #refresh(): Promise<void> {
    const start = performance.now()
    // The readiness check reports that the database cannot be read.
    this.#latest = await stockLevels(this.#database).catch(() => [])
    const duration = performance.now() - start
    this.#nextStart = start + Math.max(MIN_INTERVAL_MS, PAUSE_FACTOR * duration)
  }
}
