/** How long after a renewal there is no other, and after one that did not help. */
const PAUSE_MS = 1000
const LONG_PAUSE_MS = 30_000

/**
 * Decides which connections of a pool are renewed after an ERROR that nobody expected; see `isUnexpected`. The statement, which has
 * changed nothing, is sent once more on a connection that was opened after the renewal began, and each older connection is renewed
 * when it has such an error, too. A statement that always fails must not cost a login each time.
 */
export class Renewal {
  #beganAt = Number.NEGATIVE_INFINITY
  #nextAt = Number.NEGATIVE_INFINITY

  /**
   * Returns when the renewal began that a connection has missed, which was opened at a time; undefined if it is to be used again. All
   * times are by `performance.now()`.
   */
  missedBy(openedAt: number): number | undefined {
    const now = performance.now()
    if (now >= this.#nextAt) {
      this.#beganAt = now
      this.#nextAt = now + PAUSE_MS
    }
    return openedAt < this.#beganAt ? this.#beganAt : undefined
  }

  /** Is called when the statement has failed on the new connection, too. */
  onFailure(): void {
    this.#nextAt = performance.now() + LONG_PAUSE_MS
  }
}
