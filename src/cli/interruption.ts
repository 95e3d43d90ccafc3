import { HOW_TO_FIND_OUT } from '../process/explain.ts'
import { onStopSignal } from '../process/signals.ts'
import { report } from '../process/terminal.ts'
import { exitCodes, InterruptedError } from './failure.ts'

/**
 * Aborts a command on SIGINT, SIGTERM or SIGHUP. From the commit on, and as the second one, a signal exits at once. Returns the options
 * of the command's transaction, which also report the locks that it waits for.
 *
 * @param consequence of an interruption before the commit
 */
export function abortOnSignals(consequence = 'nothing was changed') {
  const controller = new AbortController()
  let phase: 'work' | 'commit' | 'committed' = 'work'
  onStopSignal((signal) => {
    const interruption = new InterruptedError(signal, consequence)
    if (phase === 'committed') {
      report('inventory: interrupted after the commit; the change remains')
      process.exit(interruption.exitCode)
    }
    if (phase === 'commit') {
      report(
        `inventory: interrupted during the commit; it is unknown whether anything was changed. ${HOW_TO_FIND_OUT}`,
      )
      // Without this, the kernel would go on sending a COMMIT that was lost on the way.
      controller.abort()
      process.exit(exitCodes.outcomeUnknown)
    }
    if (controller.signal.aborted) process.exit(interruption.exitCode)
    controller.abort(interruption)
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
