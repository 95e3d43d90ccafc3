import { Histogram } from '../statistics/histogram.ts'

/** Counts the work of the inventory since the start of the process. The list and the update queue write to it. */
export class InventoryStatistics {
  /** Updates waiting to be sent to PostgreSQL. */
  waitingUpdates = 0
  /** Updates in each batch, which is one statement. */
  readonly batches = new Histogram([1, 2, 5, 10, 25, 50, 100, 250, 500, 1000])
  /** Lists by what was read: all entries, the changed ones or none; `joined` lists were coalesced with another read. */
  readonly lists = { read: 0, changed: 0, unchanged: 0, joined: 0 }
}
