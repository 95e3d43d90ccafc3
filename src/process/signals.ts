import { constants } from 'node:os'
import type { Logger } from 'pino'
import { exitCodes, HOW_TO_FIND_OUT } from './exit-codes.ts'
import { report } from './terminal.ts'

/** npm forwards a Ctrl-C that the terminal has already sent: within this time, it is the same signal. */
const DUPLICATE_SIGNAL_MS = 200

/** The last one is sent when the terminal closes, as when an SSH connection is lost. */
const stopSignals: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP']

/** Calls a function on each stop signal that does not repeat the one before. */
function onStopSignal(act: (signal: NodeJS.Signals) => void): void {
  let last = Number.NEGATIVE_INFINITY
  for (const signal of stopSignals) {
    process.on(signal, () => {
      const isRepeated = performance.now() - last < DUPLICATE_SIGNAL_MS
      last = performance.now()
      if (!isRepeated) act(signal)
    })
  }
}

/**
 * Runs `close` on a stop signal or an unhandled error, and exits. The exit code is 0 if a signal was the reason and `close` completed
 * within `timeoutMs`, otherwise 1. A second signal or error exits at once.
 */
export function closeOnSignals(log: Logger, timeoutMs: number, close: () => Promise<void>): void {
  let isStopping = false

  const stop = async (exitCode: number): Promise<void> => {
    // A second signal, or what fails while it stops.
    if (isStopping) process.exit(1)
    isStopping = true
    setTimeout(() => {
      log.error(`did not stop within ${timeoutMs} ms: exiting`)
      process.exit(1)
    }, timeoutMs)
    await close()
    log.info('stopped')
    log.flush(() => process.exit(exitCode))
  }
  const onError = (err: unknown): void => {
    log.fatal({ err }, 'stopping after an error')
    void stop(1)
  }
  process.on('uncaughtException', onError)
  process.on('unhandledRejection', onError)
  onStopSignal((signal) => {
    log.info(`${signal}: stopping`)
    void stop(0)
  })
}

/** A signal interrupted the command, which has rolled back its changes. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError'
  readonly exitCode: number

  constructor(signal: NodeJS.Signals) {
    super('interrupted; nothing was changed')
    this.exitCode = exitCodeOf(signal)
  }
}

/** Aborts a command on SIGINT, SIGTERM or SIGHUP. From the commit on, and as the second one, a signal exits at once. */
export function abortOnSignals() {
  const controller = new AbortController()
  let phase: 'work' | 'commit' | 'committed' = 'work'
  onStopSignal((signal) => {
    if (phase === 'committed') {
      report('inventory: interrupted after the commit; the change remains')
      process.exit(exitCodeOf(signal))
    }
    if (phase === 'commit') {
      report(
        `inventory: interrupted during the commit; it is unknown whether anything was changed. ${HOW_TO_FIND_OUT}`,
      )
      // Else the kernel would go on sending a COMMIT that was lost on the way.
      controller.abort()
      process.exit(exitCodes.outcomeUnknown)
    }
    if (controller.signal.aborted) process.exit(exitCodeOf(signal))
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
  }
}

/** The exit code that shells report for a process that a signal has terminated. */
function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}
