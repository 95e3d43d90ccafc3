import type { IncomingMessage, ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers'

/**
 * Maximum requests started in one event-loop iteration, and in one that accepted a connection. Node accepts one connection in
 * each iteration, so in long ones, thousands of busy connections would keep new ones from being accepted.
 */
const MAX_STARTS = 16
const MAX_STARTS_WITH_NEW_CONNECTION = 4

/**
 * Starts requests in the order in which they arrive, a limited number in each event-loop iteration. Up to half of them are urgent
 * ones that arrived later than others.
 */
export class StartQueue {
  readonly #start: (response: ServerResponse) => void
  readonly #isUrgent: (request: IncomingMessage) => boolean
  readonly #waiting: ServerResponse[] = []
  readonly #urgent: ServerResponse[] = []
  /** Requests started in this event-loop iteration; a few of earlier ones may be among them. */
  #starts = 0
  #maxStarts = MAX_STARTS
  #isEndScheduled = false
  #isHeld = false

  constructor(start: (response: ServerResponse) => void, isUrgent: (request: IncomingMessage) => boolean) {
    this.#start = start
    this.#isUrgent = isUrgent
  }

  /** Records that a connection was accepted in this event-loop iteration. */
  connectionAccepted(): void {
    this.#maxStarts = MAX_STARTS_WITH_NEW_CONNECTION
    this.#scheduleEnd()
  }

  /** Starts a request: now, or when it is its turn. */
  add(response: ServerResponse): void {
    const hasWaiting = this.#waiting.length > 0 || this.#urgent.length > 0
    if (this.#isHeld || hasWaiting || this.#starts >= this.#maxStarts) {
      const queue = this.#isUrgent(response.req) ? this.#urgent : this.#waiting
      queue.push(response)
      this.#scheduleEnd()
      return
    }
    this.#starts++
    this.#start(response)
  }

  /** Defers all requests until `release`. */
  hold(): void {
    this.#isHeld = true
  }

  release(): void {
    this.#isHeld = false
    this.#scheduleEnd()
  }

  /** Not in each iteration: for a single caller, that would cost more than a few starts matter. */
  #scheduleEnd(): void {
    if (this.#isEndScheduled) return
    this.#isEndScheduled = true
    setImmediate(() => this.#endIteration())
  }

  #endIteration(): void {
    this.#isEndScheduled = false
    this.#starts = 0
    if (this.#isHeld) return
    const urgent = this.#urgent.splice(0, this.#maxStarts / 2)
    for (const response of [...urgent, ...this.#waiting.splice(0, this.#maxStarts - urgent.length)]) {
      this.#starts++
      if (!response.req.socket.destroyed) this.#start(response)
    }
    this.#maxStarts = MAX_STARTS
    if (this.#starts > 0) this.#scheduleEnd()
  }
}
