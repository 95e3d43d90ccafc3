/** How long after a renewal there is no other: at first, at most, and how long it takes to be as at first again. */
const PAUSE_MS = 500
const MAX_PAUSE_MS = 30_000
const QUIET_MS = 60_000

/**
 * Decides which connections of a pool are renewed after an ERROR that nobody expected. A session may remember what has changed since,
 * such as the plan of a function. So the statement, which has changed nothing, is sent once more, on a connection that was opened
 * after the renewal began, and each older connection is renewed when it has such an error, too. As a statement that fails always, or
 * often, must not cost a login each time, the pause between renewals doubles, and is the longest after one that did not help.
 */
export class Renewal {
  #beganAt = Number.NEGATIVE_INFINITY
  #pauseMs = PAUSE_MS

  /**
   * Returns when the renewal began that a connection has missed, which was opened at a time; undefined if it is to be used again. All
   * times are by `performance.now()`.
   */
  missedBy(openedAt: number): number | undefined {
    const now = performance.now()
    const sinceLast = now - this.#beganAt
    if (sinceLast >= this.#pauseMs) {
      this.#pauseMs = sinceLast >= QUIET_MS ? PAUSE_MS : Math.min(2 * this.#pauseMs, MAX_PAUSE_MS)
      this.#beganAt = now
    }
    return openedAt < this.#beganAt ? this.#beganAt : undefined
  }

  /** Is called when the statement has failed on the new connection, too. */
  onFailure(): void {
    this.#pauseMs = MAX_PAUSE_MS
  }
}
