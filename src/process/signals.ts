import type { Logger } from 'pino'

/** npm forwards a Ctrl-C that the terminal has already sent: within this time, it is the same signal. */
const DUPLICATE_SIGNAL_MS = 200

/** The last one is sent when the terminal closes, as when an SSH connection is lost. */
const stopSignals: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP']

/** Calls a function on each stop signal that does not repeat the one before. */
export function onStopSignal(act: (signal: NodeJS.Signals) => void): void {
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
