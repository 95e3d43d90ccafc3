/** What a contender did in one round of one case. */
export interface Sample {
  /** Answers, or statements, a second. */
  readonly perSecond: number
  /** The median time for one of them, in milliseconds. */
  readonly p50: number
  /** The time that 99 of 100 stayed within, in milliseconds. */
  readonly p99: number
  /** How many failed: no answer, a status of 400 or more, or fewer bytes than the list has. */
  readonly errors: number
}

/** The value that `share` of the sorted values, from 0 to 1, do not exceed; NaN where there are none. */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

/** The middle value; of an even number of values, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN
  return (lower + upper) / 2
}

/**
 * The median of the quotients of two contenders in the same round. A machine that was slow for a while slowed both
 * down, so it shows less here than in a quotient of two medians.
 */
export function ratio(
  samples: readonly Sample[],
  against: readonly Sample[],
  measure: 'perSecond' | 'p50',
): number {
  const quotients = samples.flatMap((sample, round) => {
    const other = against[round]
    return other === undefined ? [] : [sample[measure] / other[measure]]
  })
  return median(quotients)
}

/** The sample that a list of times, in milliseconds, amounts to. */
export function sampleOf(times: Float64Array, seconds: number, errors: number): Sample {
  const sorted = times.toSorted()
  return {
    perSecond: times.length / seconds,
    p50: percentile(sorted, 0.5),
    p99: percentile(sorted, 0.99),
    errors,
  }
}
