import { Histogram } from 'prom-client'
import type { StandbyProblem } from '../database/standby-problem.ts'

/** Counts the lists that were read from the standby, and those that were not, by reason. */
export class StandbyStatistics {
  /** Whether lists are read from the standby now. */
  isInUse = false
  readonly outcomes: Record<'served' | StandbyProblem, number> = {
    served: 0,
    unreachable: 0,
    not_standby: 0,
    other_cluster: 0,
    other_timeline: 0,
    other_table: 0,
    unverified: 0,
    lagging: 0,
    ahead: 0,
    unsuited: 0,
    conflict: 0,
    interrupted: 0,
  }
}

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
  /** Undefined if lists are read only from the primary. */
  readonly standby: StandbyStatistics | undefined

  constructor(standby?: StandbyStatistics) {
    this.standby = standby
  }
}
