import { constants } from 'node:os'
import { exitCodes } from './exit-codes.ts'

/** npm passes on a Ctrl-C that the terminal has sent to this process already; within this time it is the same one. */
const SAME_SIGNAL_MS = 200

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

/** What a transaction needs to know of the operator's signals, and to tell them. */
export interface Interruption {
  /** Aborts with an InterruptedError on the first SIGINT or SIGTERM before the commit. */
  readonly signal: AbortSignal
  /** To be called when the commit begins: a signal cannot undo it any more. */
  onCommit(): void
}

/** Listens for SIGINT and SIGTERM; a second one ends the process at once. */
export function untilInterrupted(): Interruption {
  const controller = new AbortController()
  let first: number | undefined
  let isCommitting = false
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (first === undefined) {
        first = performance.now()
        if (isCommitting) console.error('inventory: waiting for PostgreSQL to end the commit')
        else controller.abort(new InterruptedError(signal))
      } else if (performance.now() - first > SAME_SIGNAL_MS) {
        if (!isCommitting) process.exit(exitCodeOf(signal))
        console.error('inventory: interrupted during the commit; it is unknown whether anything was changed')
        process.exit(exitCodes.outcomeUnknown)
      }
    })
  }
  return {
    signal: controller.signal,
    onCommit() {
      isCommitting = true
    },
  }
}

/** What shells report for a program that a signal has ended. */
function exitCodeOf(signal: StopSignal): number {
  return 128 + constants.signals[signal]
}
