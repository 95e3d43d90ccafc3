/** The fastest statement is that of the last one to two periods. */
const PERIOD_MS = 5000

/**
 * Measures how long the fastest statement of the last 5 to 10 seconds took: one that neither other statements nor the network
 * delayed. An overloaded server makes most statements slower, but hardly the fastest one.
 */
export class FastestStatement {
  #previous = Number.POSITIVE_INFINITY
  #current = Number.POSITIVE_INFINITY
  #periodEnd = 0

  /** In milliseconds; 0 until the first statement. */
  get milliseconds(): number {
    const fastest = Math.min(this.#previous, this.#current)
    return Number.isFinite(fastest) ? fastest : 0
  }

  /** Records how long a statement took, from when it was sent until its response, without its execution. */
  observe(milliseconds: number, now = performance.now()): void {
    if (now >= this.#periodEnd) {
      // After a pause of more than a period, the previous period is too old.
      this.#previous = now < this.#periodEnd + PERIOD_MS ? this.#current : Number.POSITIVE_INFINITY
      this.#current = Number.POSITIVE_INFINITY
      this.#periodEnd = now + PERIOD_MS
    }
    this.#current = Math.min(this.#current, milliseconds)
  }
}
