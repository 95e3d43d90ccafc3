/**
 * Counts values in buckets, for a Prometheus histogram. An observation takes about 10 ns, cheap enough for every request;
 * docs/decisions.md compares that with prom-client.
 */
export class Histogram {
  /** Upper bounds of the buckets, ascending and inclusive (Prometheus: `le`). */
  readonly bounds: readonly number[]
  /** Number of values in each bucket, not cumulative; the last one is above all bounds. */
  readonly counts: number[]
  /** Sum of all values. */
  sum = 0

  constructor(bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = Array(bounds.length + 1).fill(0)
  }

  observe(value: number): void {
    const { bounds, counts } = this
    let bucket = 0
    while (bucket < bounds.length && value > Number(bounds[bucket])) bucket++
    counts[bucket] = Number(counts[bucket]) + 1
    this.sum += value
  }
}
