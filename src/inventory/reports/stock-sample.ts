import { setTimeout } from 'node:timers/promises'
import type { Database } from '../../database/database.ts'
import { type PetStatus, petStatuses } from '../entry/schemas.ts'

/** The entries of one status. */
export interface StockLevel {
  readonly status: PetStatus
  readonly entries: number
  /** Entries with a quantity of 0. */
  readonly outOfStock: number
}

/** Minimum time between the starts of two counts. */
const MIN_INTERVAL_MS = 60_000

/** A slow count is repeated after this multiple of its duration at the earliest. */
const PAUSE_FACTOR = 10

/** How long `read` waits for a count before it returns the previous one. */
const COUNT_TIMEOUT_MS = 500

/**
 * Target duration of one statement, which occupies the connection of the readiness check and the key cache. The number of
 * entries for each statement is adjusted to it, because rows that are not cached take far longer.
 */
const TARGET_STATEMENT_MS = 20
const MIN_CHUNK_ENTRIES = 500
const MAX_CHUNK_ENTRIES = 10_000

interface ChunkRow {
  readonly status: PetStatus
  readonly entries: number
  readonly outOfStock: number
  readonly last: bigint
}

/**
 * Counts the entries by status when `read` is called, at most once a minute and for at most a tenth of the time. It counts in
 * chunks, so the counts of a table that is being changed are not a consistent snapshot.
 */
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
    this.#latest = await this.#count().catch(() => [])
    const duration = performance.now() - start
    this.#nextStart = start + Math.max(MIN_INTERVAL_MS, PAUSE_FACTOR * duration)
  }

  async #count(): Promise<readonly StockLevel[]> {
    const levels = new Map(petStatuses.map((status) => [status, { status, entries: 0, outOfStock: 0 }]))
    let last: bigint | undefined
    let limit = MIN_CHUNK_ENTRIES
    for (;;) {
      const start = performance.now()
      const rows = await this.#database.query<ChunkRow>(
        `SELECT status, count(*)::integer AS entries, (count(*) FILTER (WHERE quantity = 0))::integer AS "outOfStock",
                max(pet_id) AS last
         FROM (SELECT pet_id, status, quantity FROM inventory
               ${last === undefined ? '' : 'WHERE pet_id > $1'} ORDER BY pet_id LIMIT ${limit}) AS chunk
         GROUP BY status`,
        last === undefined ? [] : [last],
      )
      let counted = 0
      for (const row of rows) {
        const level = levels.get(row.status)
        if (level !== undefined) {
          level.entries += row.entries
          level.outOfStock += row.outOfStock
        }
        counted += row.entries
        if (last === undefined || row.last > last) last = row.last
      }
      if (counted < limit) return [...levels.values()]
      const isFast = performance.now() - start < TARGET_STATEMENT_MS
      limit = isFast
        ? Math.min(limit * 2, MAX_CHUNK_ENTRIES)
        : Math.max(Math.floor(limit / 2), MIN_CHUNK_ENTRIES)
    }
  }
}
