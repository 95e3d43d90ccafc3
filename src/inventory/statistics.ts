import type { StandbyProblem } from '../database/standby.ts'
import { Histogram } from '../statistics/histogram.ts'

/** Whether lists are read from a standby, and what became of each that was to be: read there, or why not. */
export class StandbyStatistics {
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

/** Counts the work of the inventory since the start of the process. The list and the update queue write to it. */
export class InventoryStatistics {
  /** Updates waiting to be sent to PostgreSQL. */
  waitingUpdates = 0
  /** Updates in each batch, which is one statement. */
  readonly batches = new Histogram([1, 2, 5, 10, 25, 50, 100, 250, 500, 1000])
  /** Lists by what was read: all entries, the changed ones or none; `joined` lists were coalesced with another read. */
  readonly lists = { read: 0, changed: 0, unchanged: 0, joined: 0 }
  /** Undefined where lists are read from the primary alone. */
  standby: StandbyStatistics | undefined
}
