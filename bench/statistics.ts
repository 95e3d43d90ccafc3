/** A contender's result in one round of a case. */
export interface Sample {
  /** Responses or statements per second. */
  readonly perSecond: number
  /** Median time in milliseconds. */
  readonly p50: number
  /** 99th percentile of the time in milliseconds. */
  readonly p99: number
  /** Number of failures: no response, a status of 400 or more, or fewer bytes than the list has. */
  readonly errors: number
  /** Number of responses, or statements. */
  readonly count: number
  /** CPU time of the contender's processes per response, in microseconds. Absent or NaN if it is unknown. */
  readonly contenderCpuUs?: number
  /** CPU time of the database server per response, in microseconds. */
  readonly databaseCpuUs?: number
}

/** Returns the quantile `share`, from 0 to 1, of sorted values, or NaN if there are none. */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

/** Returns the median. For an even number of values, this is the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN
  return (lower + upper) / 2
}

/**
 * Returns the median of the ratios between two contenders in the same round. A temporary slowdown of the machine affects both
 * contenders in a round, so it distorts this median less than a ratio of two medians.
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

/** Repeats a measurement, whose time `take` returns in milliseconds, until `seconds` have passed, but at least twice. */
export async function repeat(seconds: number, take: () => Promise<number>): Promise<Sample> {
  const times: number[] = []
  const end = performance.now() + seconds * 1000
  while (times.length < 2 || performance.now() < end) times.push(await take())
  const taken = times.reduce((sum, time) => sum + time, 0)
  return sampleOf(Float64Array.from(times), taken / 1000, 0)
}
