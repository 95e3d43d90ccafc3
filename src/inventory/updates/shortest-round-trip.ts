/** How long a measured value counts: at least one period, at most two. */
const PERIOD_MS = 5000

/** The shortest round trip of the last seconds, which is that of a statement that did not have to wait. */
export class ShortestRoundTrip {
  #previous = Number.POSITIVE_INFINITY
  #current = Number.POSITIVE_INFINITY
  #periodEnd = 0

  /** In milliseconds; 0 until there is one. */
  get milliseconds(): number {
    const shortest = Math.min(this.#previous, this.#current)
    return Number.isFinite(shortest) ? shortest : 0
  }

  observe(milliseconds: number, now = performance.now()): void {
    if (now >= this.#periodEnd) {
      // After a longer pause, the previous period is too old.
      this.#previous = now < this.#periodEnd + PERIOD_MS ? this.#current : Number.POSITIVE_INFINITY
      this.#current = Number.POSITIVE_INFINITY
      this.#periodEnd = now + PERIOD_MS
    }
    this.#current = Math.min(this.#current, milliseconds)
  }
}
