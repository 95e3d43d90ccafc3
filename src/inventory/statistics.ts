import { Histogram } from '../statistics/histogram.ts'

/** What the inventory has done since the start, and what it has to do. Each number is written where it comes about. */
export class InventoryStatistics {
  /** Updates that wait for their statement now. */
  waitingUpdates = 0
  /** How many updates went out together in one statement. */
  readonly batches = new Histogram([1, 2, 5, 10, 25, 50, 100, 250, 500, 1000])
  /** Lists by what they cost: all entries read, the changed ones, none, or nothing, as another caller's read served. */
  readonly lists = { read: 0, changed: 0, unchanged: 0, joined: 0 }
}
