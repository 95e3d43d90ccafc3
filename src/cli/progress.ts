/** Interval between lines of progress. */
const INTERVAL_MS = 5000

/**
 * Returns a function that reports the number of rows done, and how much of `total`: with a line on standard error every few
 * seconds. `total` is in any unit; without it, no remaining time is shown.
 */
export function reportProgress(
  verb: string,
  total: number | undefined,
): (rows: number, done: number) => void {
  const start = performance.now()
  let next = start + INTERVAL_MS
  return (rows, done) => {
    const now = performance.now()
    if (now < next) return
    next = now + INTERVAL_MS
    const seconds = (now - start) / 1000
    const left =
      total === undefined || done === 0 ? '' : `, ${formatSeconds((seconds * (total - done)) / done)} left`
    console.error(`${verb} ${formatNumber(rows)} rows, ${formatNumber(rows / seconds)} rows/s${left}`)
  }
}

/** Formats a whole number with thousands separators. */
export function formatNumber(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** Formats a number of things with their noun. */
export function formatCount(value: number, one: string, several: string): string {
  return `${formatNumber(value)} ${value === 1 ? one : several}`
}

function formatSeconds(value: number): string {
  const seconds = Math.ceil(value)
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`
}
