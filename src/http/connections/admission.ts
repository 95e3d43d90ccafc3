import { setImmediate } from 'node:timers'
import type { Connection } from './connection.ts'

/**
 * Maximum requests started in one event-loop iteration, and in one that accepted a connection. Node accepts one
 * connection in each iteration, so long iterations make new clients wait.
 */
const MAX_STARTS = 16
const MAX_STARTS_WITH_NEW_CONNECTION = 4

export interface AdmissionOptions {
  /** Starts the oldest waiting request of a connection. */
  readonly start: (connection: Connection) => void
  /** Whether the oldest waiting request of a connection takes precedence over other kinds, as health checks do. */
  readonly isUrgent: (connection: Connection) => boolean
}

/**
 * Starts requests so that no connection starves the others: connections wait in a queue, each at most once, and a bounded
 * number of requests starts in each event-loop iteration.
 */
export class Admission {
  readonly #options: AdmissionOptions
  /** Connections with a request that can start, longest waiting first. */
  readonly #ready = new Set<Connection>()
  readonly #readyUrgent = new Set<Connection>()
  /** Requests started in this event-loop iteration; a few of earlier ones may be among them. */
  #starts = 0
  #isIterationEndScheduled = false
  #hasNewConnection = false
  #isHeld = false

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  /** Number of waiting connections. */
  get size(): number {
    return this.#ready.size + this.#readyUrgent.size
  }

  /** Records that a connection was accepted in this event-loop iteration. */
  connectionAccepted(): void {
    this.#hasNewConnection = true
  }

  /** Starts the oldest waiting request of a connection, which has none in flight: now, or when it is its turn. */
  add(connection: Connection): void {
    connection.readySince = performance.now()
    if (!this.#isHeld && this.size === 0 && this.#starts < this.#maxStarts) {
      this.#start(connection)
      return
    }
    const ready = this.#options.isUrgent(connection) ? this.#readyUrgent : this.#ready
    ready.add(connection)
    this.#scheduleIterationEnd()
  }

  /** Removes a connection that has closed. */
  delete(connection: Connection): void {
    this.#ready.delete(connection)
    this.#readyUrgent.delete(connection)
  }

  /** Defers all requests until `release`. */
  hold(): void {
    this.#isHeld = true
  }

  release(): void {
    this.#isHeld = false
    this.#scheduleIterationEnd()
  }

  get #maxStarts(): number {
    return this.#hasNewConnection ? MAX_STARTS_WITH_NEW_CONNECTION : MAX_STARTS
  }

  #start(connection: Connection): void {
    this.#starts++
    // For a single caller, finding the end of every iteration would cost more than these few starts matter.
    if (this.#starts >= MAX_STARTS_WITH_NEW_CONNECTION || this.#hasNewConnection) this.#scheduleIterationEnd()
    this.#options.start(connection)
  }

  #scheduleIterationEnd(): void {
    if (this.#isIterationEndScheduled) return
    this.#isIterationEndScheduled = true
    setImmediate(() => this.#endIteration())
  }

  #endIteration(): void {
    this.#isIterationEndScheduled = false
    this.#starts = 0
    if (this.#isHeld) return
    // Urgent requests get half of the starts at most, so that a flood of them does not starve the others.
    this.#startReady(this.#readyUrgent, this.#maxStarts / 2)
    this.#startReady(this.#ready, this.#maxStarts)
    this.#hasNewConnection = false
    if (this.#starts > 0) this.#scheduleIterationEnd()
  }

  #startReady(ready: Set<Connection>, maxStarts: number): void {
    for (const connection of ready) {
      if (this.#starts >= maxStarts) return
      ready.delete(connection)
      this.#start(connection)
    }
  }
}
