import type { ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers'

/**
 * Maximum requests started in one event-loop iteration; in one that accepted a connection, a quarter of it. Node accepts one
 * connection in each iteration, so in long ones, thousands of busy connections would keep new ones from being accepted.
 */
const MAX_STARTS = 16

/**
 * Starts requests in the order in which they arrived, a limited number in each event-loop iteration. It starts none while Node
 * parses what it has read, up to 2 MB at once: a refused request with a body is answered before the next one is parsed, so
 * thousands of pipelined ones would not count as such.
 */
export class StartQueue {
  readonly #start: (response: ServerResponse) => void
  readonly #waiting: ServerResponse[] = []
  #hasAccepted = false
  #isHeld = false

  constructor(start: (response: ServerResponse) => void) {
    this.#start = start
  }

  /** Records that a connection was accepted in this event-loop iteration. */
  connectionAccepted(): void {
    this.#hasAccepted = true
  }

  add(response: ServerResponse): void {
    if (this.#waiting.push(response) === 1) this.#schedule()
  }

  /** Defers all requests until `release`. */
  hold(): void {
    this.#isHeld = true
  }

  release(): void {
    this.#isHeld = false
    this.#schedule()
  }

  #schedule(): void {
    setImmediate(() => {
      if (this.#isHeld) return
      const next = this.#waiting.splice(0, this.#hasAccepted ? MAX_STARTS / 4 : MAX_STARTS)
      this.#hasAccepted = false
      if (this.#waiting.length > 0) this.#schedule()
      for (const response of next) if (!response.req.socket.destroyed) this.#start(response)
    })
  }
}
