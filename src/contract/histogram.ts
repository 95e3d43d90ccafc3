/**
 * How many values fell into each of several ranges, and their sum: what a histogram of Prometheus is made of. Observing
 * a value takes some nanoseconds, so that it can be done for every request.
 */
export class Histogram {
  /** The upper bounds of the ranges, ascending; a value that equals one is below it. */
  readonly bounds: readonly number[]
  /** How many values each range has got, with one more range above the last bound. */
  readonly counts: number[]
  /** Of all values. */
  sum = 0

  constructor(bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = Array(bounds.length + 1).fill(0)
  }

  observe(value: number): void {
    const { bounds, counts } = this
    let range = 0
    while (range < bounds.length && value > Number(bounds[range])) range++
    counts[range] = Number(counts[range]) + 1
    this.sum += value
  }
}
