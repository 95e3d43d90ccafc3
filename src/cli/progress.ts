import { Presets, SingleBar } from 'cli-progress'

/** Interval between lines of progress without a terminal. */
const LINE_INTERVAL_MS = 5000

export interface Progress {
  /** Reports the number of rows done, and how much of the total. */
  update(rows: number, done: number): void
  /** Ends the report. */
  stop(): void
}

/**
 * Reports progress on standard error: as a bar on a terminal, as a line every few seconds elsewhere. `total` is in any
 * unit; without it, no remaining time is shown.
 */
export function startProgress(verb: string, total: number | undefined): Progress {
  const start = performance.now()
  const state: State = (rows, done) => {
    const seconds = (performance.now() - start) / 1000
    return {
      rows: formatNumber(rows),
      rate: formatNumber(rows / Math.max(seconds, 0.001)),
      left:
        total === undefined || done === 0 ? '' : `, ${formatSeconds((seconds * (total - done)) / done)} left`,
    }
  }
  return process.stderr.isTTY ? barOf(verb, total, state) : linesOf(verb, state)
}

type State = (rows: number, done: number) => Record<'rows' | 'rate' | 'left', string>

function barOf(verb: string, total: number | undefined, state: State): Progress {
  const bar = new SingleBar(
    {
      format: `${verb} ${total === undefined ? '' : '[{bar}] {percentage}% '}{rows} rows, {rate} rows/s{left}`,
      barsize: 30,
      hideCursor: false,
      stream: process.stderr,
    },
    Presets.legacy,
  )
  bar.start(total ?? 0, 0, state(0, 0))
  return {
    update: (rows, done) => bar.update(done, state(rows, done)),
    stop: () => bar.stop(),
  }
}

function linesOf(verb: string, state: State): Progress {
  let next = performance.now() + LINE_INTERVAL_MS
  return {
    update(rows, done) {
      const now = performance.now()
      if (now < next) return
      next = now + LINE_INTERVAL_MS
      const { rows: count, rate, left } = state(rows, done)
      console.error(`${verb} ${count} rows, ${rate} rows/s${left}`)
    },
    stop() {},
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
