/** The result of a contender in one round of a case. */
export interface Sample {
  /** Responses, or statements, per second. */
  readonly perSecond: number
  /** Median time in milliseconds. */
  readonly p50: number
  /** 99th percentile of the time in milliseconds. */
  readonly p99: number
  /** Number of failures: no response, a status of 400 or more, or fewer bytes than the list has. */
  readonly errors: number
  /** Number of responses, or statements. */
  readonly count: number
  /** CPU time of the contender's processes per response, in microseconds; absent or NaN if it is not known. */
  readonly contenderCpuUs?: number
  /** That of the database's server. */
  readonly databaseCpuUs?: number
  /** That of its standby or its workers, together. */
  readonly otherCpuUs?: number
}

/** The quantile `share`, from 0 to 1, of the sorted values; NaN if there are none. */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

/** The median; of an even number of values, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN
  return (lower + upper) / 2
}

/**
 * The median of the ratios of two contenders in the same round. A machine that was slow for a while slowed down both, so
 * it affects this less than a ratio of two medians.
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

/** Computes a sample from times in milliseconds. */
export function sampleOf(times: Float64Array, seconds: number, errors: number): Sample {
  const sorted = times.toSorted()
  return {
    perSecond: times.length / seconds,
    p50: percentile(sorted, 0.5),
    p99: percentile(sorted, 0.99),
    errors,
    count: times.length,
  }
}

/** Measures repeatedly until `seconds` have passed, at least twice; returns the times in milliseconds. */
export async function repeat(seconds: number, take: () => Promise<number>): Promise<Sample> {
  const times: number[] = []
  const end = performance.now() + seconds * 1000
  while (times.length < 2 || performance.now() < end) times.push(await take())
  const taken = times.reduce((sum, time) => sum + time, 0)
  return sampleOf(Float64Array.from(times), taken / 1000, 0)
}
