import type { ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers'

/**
 * Maximum requests started in one event-loop iteration, and in one that accepted a connection. Node accepts one connection in
 * each iteration, so in long ones, thousands of busy connections would keep new ones from being accepted.
 */
const MAX_STARTS = 16
const MAX_STARTS_WITH_NEW_CONNECTION = 4

/** How soon a request starts when not all can start at once. A pipelined one was sent before the response before it. */
export type Priority = 'urgent' | 'usual' | 'pipelined'

/**
 * Starts requests, a limited number in each event-loop iteration: those of a higher priority first, which leave half of the
 * starts to the others, and those of the same priority in the order in which they arrived.
 */
export class StartQueue {
  readonly #start: (response: ServerResponse) => void
  readonly #waiting: Readonly<Record<Priority, ServerResponse[]>> = { urgent: [], usual: [], pipelined: [] }
  /** Requests started in this event-loop iteration; a few of earlier ones may be among them. */
  #starts = 0
  #maxStarts = MAX_STARTS
  #isEndScheduled = false
  #isHeld = false

  constructor(start: (response: ServerResponse) => void) {
    this.#start = start
  }

  /** Records that a connection was accepted in this event-loop iteration. */
  connectionAccepted(): void {
    this.#maxStarts = MAX_STARTS_WITH_NEW_CONNECTION
    this.#scheduleEnd()
  }

  /** Starts a request: now, or when it is its turn. */
  add(response: ServerResponse, priority: Priority): void {
    const { urgent, usual, pipelined } = this.#waiting
    const hasWaiting = urgent.length + usual.length + pipelined.length > 0
    if (this.#isHeld || hasWaiting || this.#starts >= this.#maxStarts) {
      this.#waiting[priority].push(response)
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
    const { urgent, usual, pipelined } = this.#waiting
    const next = urgent.splice(0, this.#maxStarts / 2)
    const rest = this.#maxStarts - next.length
    next.push(...usual.splice(0, pipelined.length > 0 ? rest / 2 : rest))
    next.push(...pipelined.splice(0, this.#maxStarts - next.length))
    for (const response of next) {
      this.#starts++
      if (!response.req.socket.destroyed) this.#start(response)
    }
    this.#maxStarts = MAX_STARTS
    if (this.#starts > 0) this.#scheduleEnd()
  }
}
