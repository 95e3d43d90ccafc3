/** The shortest round trip is that of the last one to two periods. */
const PERIOD_MS = 5000

/** Share of statements that take less time than the quick round trip. */
const QUICK_SHARE = 0.1

/** Relative amount by which one statement adjusts the quick round trip. */
const QUICK_STEP = 0.02

/** Measures the round trip of statements in two ways, both in milliseconds and 0 until the first statement. */
export class RoundTrip {
  #previousShortest = Number.POSITIVE_INFINITY
  #currentShortest = Number.POSITIVE_INFINITY
  #periodEnd = 0
  #quick = 0

  /**
   * The shortest round trip of the last 5 to 10 seconds, from a statement that neither other statements nor the network
   * delayed.
   */
  get shortest(): number {
    const shortest = Math.min(this.#previousShortest, this.#currentShortest)
    return Number.isFinite(shortest) ? shortest : 0
  }

  /**
   * An estimate of the 10th percentile of the last few hundred round trips: how long a quick statement takes if the latency of
   * the network varies. Unlike `shortest`, it increases with the load.
   */
  get quick(): number {
    return this.#quick
  }

  /** Records the round trip of a statement. */
  observe(milliseconds: number, now = performance.now()): void {
    if (now >= this.#periodEnd) {
      // After a pause of more than a period, the previous period is too old.
      this.#previousShortest =
        now < this.#periodEnd + PERIOD_MS ? this.#currentShortest : Number.POSITIVE_INFINITY
      this.#currentShortest = Number.POSITIVE_INFINITY
      this.#periodEnd = now + PERIOD_MS
    }
    this.#currentShortest = Math.min(this.#currentShortest, milliseconds)
    // A quicker statement lowers it by 1.8 %, and any other raises it by 0.2 %, so it is stable if one in ten is quicker.
    if (this.#quick === 0) this.#quick = milliseconds
    else this.#quick *= 1 + QUICK_STEP * (QUICK_SHARE - (milliseconds < this.#quick ? 1 : 0))
  }
}
