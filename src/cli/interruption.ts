import { constants } from 'node:os'

/** npm passes on a Ctrl-C that the terminal has sent to this process already; within this time it is the same one. */
const SAME_SIGNAL = 200

type StopSignal = 'SIGINT' | 'SIGTERM'

/** A signal has ended the command, which has undone what it began. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError'
  readonly exitCode: number

  constructor(signal: StopSignal) {
    super('interrupted; nothing was changed')
    this.exitCode = exitCodeOf(signal)
  }
}

/** Aborts with an InterruptedError on SIGINT and SIGTERM; a second one ends the process at once. */
export function untilInterrupted(): AbortSignal {
  const controller = new AbortController()
  let first: number | undefined
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (first === undefined) {
        first = performance.now()
        controller.abort(new InterruptedError(signal))
      } else if (performance.now() - first > SAME_SIGNAL) {
        process.exit(exitCodeOf(signal))
      }
    })
  }
  return controller.signal
}

/** What shells report for a program that a signal has ended. */
function exitCodeOf(signal: StopSignal): number {
  return 128 + constants.signals[signal]
}
