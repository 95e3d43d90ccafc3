/** Over how long the rate is measured. */
const WINDOW_MS = 250

/** The rate at which requests start while others are waiting, measured every 250 ms. Takes times of `performance.now()`. */
export class StartRate {
  #since = 0
  #starts = 0
  #perMs = Number.POSITIVE_INFINITY

  /** Forgets what was measured, because no request was waiting until now. */
  reset(now: number): void {
    this.#since = now
    this.#starts = 0
    this.#perMs = Number.POSITIVE_INFINITY
  }

  /** Counts a start. */
  add(): void {
    this.#starts++
  }

  /** The latest rate; infinite until requests have been waiting for 250 ms. */
  perMs(now: number): number {
    const elapsed = now - this.#since
    if (elapsed >= WINDOW_MS) {
      this.#perMs = this.#starts / elapsed
      this.#since = now
      this.#starts = 0
    }
    return this.#perMs
  }
}
