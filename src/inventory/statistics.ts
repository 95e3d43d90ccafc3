import { Histogram } from 'prom-client'

/** Counters of lists and updates since the process was started. The list and the update queue increment them. */
export class InventoryStatistics {
  /** Number of updates waiting to be sent to PostgreSQL. */
  waitingUpdates = 0
  readonly batches = new Histogram({
    name: 'inventory_update_batch_size',
    help: 'Updates in one batch, which is one statement.',
    buckets: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000],
    registers: [],
  })
  /** Lists by the entries that were read: all, the changed ones or none. `joined` lists were coalesced with another read. */
  readonly lists = { read: 0, changed: 0, unchanged: 0, joined: 0 }
}
