import { Counter, Gauge, Histogram, type Registry } from 'prom-client'

/** Metrics of lists and updates, which the list and the update queue count. */
export class InventoryMetrics {
  /** Number of updates waiting to be sent to PostgreSQL. */
  waitingUpdates = 0
  /** Lists by the entries that were read: all, the changed ones or none. `joined` lists were coalesced with another read. */
  readonly lists = { read: 0, changed: 0, unchanged: 0, joined: 0 }
  readonly batches: Histogram

  constructor(register: Registry) {
    const registers = [register]
    this.batches = new Histogram({
      name: 'inventory_update_batch_size',
      help: 'Updates in one batch, which is one statement.',
      buckets: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000],
      registers,
    })
    const { lists } = this
    const countWaiting = (): number => this.waitingUpdates
    new Gauge({
      name: 'inventory_updates_waiting',
      help: 'Updates waiting to be sent to PostgreSQL.',
      registers,
      collect() {
        this.set(countWaiting())
      },
    })
    new Counter({
      name: 'inventory_lists_total',
      help: 'Lists by what was read: all entries (read), the changed ones (changed), none (unchanged), or coalesced with another read (joined).',
      labelNames: ['result'],
      registers,
      collect() {
        this.reset()
        for (const [result, count] of Object.entries(lists)) this.inc({ result }, count)
      },
    })
  }
}
