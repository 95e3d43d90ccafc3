import { constants } from 'node:os'
import { HOW_TO_FIND_OUT } from '../process/explain.ts'
import { onStopSignal } from '../process/signals.ts'
import { report } from '../process/terminal.ts'
import { exitCodes } from './exit-codes.ts'

/** A signal interrupted the command, which has rolled back its changes. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError'
  readonly exitCode: number

  constructor(signal: NodeJS.Signals) {
    super('interrupted; nothing was changed')
    this.exitCode = toExitCode(signal)
  }
}

/**
 * Aborts a command on SIGINT, SIGTERM or SIGHUP. From the commit on, and as the second one, a signal exits at once. Returns the options
 * of the command's transaction, which also report the locks that it waits for.
 */
export function abortOnSignals() {
  const controller = new AbortController()
  let phase: 'work' | 'commit' | 'committed' = 'work'
  onStopSignal((signal) => {
    if (phase === 'committed') {
      report('inventory: interrupted after the commit; the change remains')
      process.exit(toExitCode(signal))
    }
    if (phase === 'commit') {
      report(
        `inventory: interrupted during the commit; it is unknown whether anything was changed. ${HOW_TO_FIND_OUT}`,
      )
      // Without this, the kernel would go on sending a COMMIT that was lost on the way.
      controller.abort()
      process.exit(exitCodes.outcomeUnknown)
    }
    if (controller.signal.aborted) process.exit(toExitCode(signal))
    controller.abort(new InterruptedError(signal))
  })
  return {
    /** Aborts on the first signal, before the commit with an InterruptedError. */
    signal: controller.signal,
    /** Call it when the commit begins. */
    onCommit(commit: Promise<void>) {
      phase = 'commit'
      void commit.then(
        () => (phase = 'committed'),
        () => {},
      )
    },
    onWait(description: string) {
      report(`inventory: ${description}`)
    },
  }
}

/** The exit code that shells report for a process that a signal has terminated. */
function toExitCode(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}
