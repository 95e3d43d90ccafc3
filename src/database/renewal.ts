/** How long after a renewal there is no other, and after one that did not help. */
const PAUSE_MS = 1000
const LONG_PAUSE_MS = 30_000

/**
 * Decides when the connections of a pool are renewed after an ERROR that nobody expected; see `isUnexpected`. None that was opened
 * before is used again, and the statement, which has changed nothing, is sent once more. One that always fails must not cost logins
 * each time.
 */
export class Renewal {
  /** When the last renewal began, by `performance.now()`. */
  beganAt = Number.NEGATIVE_INFINITY
  #nextAt = Number.NEGATIVE_INFINITY

  /** Begins a renewal, unless the last one was just now, or the statement `hasFailedAgain` on a new connection. */
  onUnexpected(hasFailedAgain: boolean): void {
    const now = performance.now()
    if (hasFailedAgain) this.#nextAt = now + LONG_PAUSE_MS
    else if (now >= this.#nextAt) {
      this.beganAt = now
      this.#nextAt = now + PAUSE_MS
    }
  }
}
