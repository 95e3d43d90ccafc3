/** How long the shortest round trip counts: at least one period, at most two. */
const PERIOD_MS = 5000

/** The share of statements that are quicker than the quick round trip, and how far one statement moves it. */
const QUICK_SHARE = 0.1
const QUICK_STEP = 0.02

/** The round trip of statements, by two measures in milliseconds, each 0 until a statement was observed. */
export class RoundTrip {
  #previousShortest = Number.POSITIVE_INFINITY
  #currentShortest = Number.POSITIVE_INFINITY
  #periodEnd = 0
  #quick = 0

  /** The shortest of the last seconds: that of a statement that did not have to wait, neither for others nor on its way. */
  get shortest(): number {
    const shortest = Math.min(this.#previousShortest, this.#currentShortest)
    return Number.isFinite(shortest) ? shortest : 0
  }

  /**
   * The 10th percentile of the last hundreds: that of a quick statement where the network takes now longer, now shorter. Load
   * makes it longer, too.
   */
  get quick(): number {
    return this.#quick
  }

  observe(milliseconds: number, now = performance.now()): void {
    if (now >= this.#periodEnd) {
      // After a longer pause, the previous period is too old.
      this.#previousShortest =
        now < this.#periodEnd + PERIOD_MS ? this.#currentShortest : Number.POSITIVE_INFINITY
      this.#currentShortest = Number.POSITIVE_INFINITY
      this.#periodEnd = now + PERIOD_MS
    }
    this.#currentShortest = Math.min(this.#currentShortest, milliseconds)
    // It stays where it is if one statement in ten moves it down by nine steps while nine move it up by one.
    if (this.#quick === 0) this.#quick = milliseconds
    else this.#quick *= 1 + QUICK_STEP * (QUICK_SHARE - (milliseconds < this.#quick ? 1 : 0))
  }
}
