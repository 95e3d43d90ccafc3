import closeWithGrace from 'close-with-grace'
import type { Logger } from 'pino'

/** npm passes on a Ctrl-C that the terminal has sent to this process already; within this time it is the same one. */
const SAME_SIGNAL = 200

/** Keeps SIGUSR1 from opening Node's inspector, through which anyone on this machine could run code in the process. */
export function ignoreInspectorSignal(): void {
  process.on('SIGUSR1', () => {})
}

/**
 * Ends the process in good order on SIGINT, SIGTERM and faults that nobody caught: `close` has `limit` milliseconds.
 * The exit code is 0 only after a signal, and when it was done in time. A second signal ends it at once.
 */
export function closeOnSignals(log: Logger, limit: number, close: () => Promise<void>): void {
  const grace = closeWithGrace(
    { delay: limit, logger: log, skip: ['SIGINT', 'SIGTERM'] },
    async ({ err }) => {
      if (err) log.fatal({ err }, 'stopping after a fault of the service')
      await close()
      log.info('stopped')
    },
  )
  let since: number | undefined
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (since === undefined) {
        since = performance.now()
        log.info(`${signal}: stopping`)
        grace.close()
      } else if (performance.now() - since > SAME_SIGNAL) {
        log.error(`second ${signal}: exiting at once`)
        process.exit(1)
      }
    })
  }
}
