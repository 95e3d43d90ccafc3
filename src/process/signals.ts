import { constants } from 'node:os'
import closeWithGrace from 'close-with-grace'
import type { Logger } from 'pino'
import { exitCodes } from './exit-codes.ts'

/** npm forwards a Ctrl-C that the terminal has already sent to this process; within this time it is the same signal. */
const DUPLICATE_SIGNAL_MS = 200

const stopSignals = ['SIGINT', 'SIGTERM'] as const
type StopSignal = (typeof stopSignals)[number]

/** Calls `onFirst` on the first SIGINT or SIGTERM, and `onSecond` on a later one. */
function onStopSignals(onFirst: (signal: StopSignal) => void, onSecond: (signal: StopSignal) => void): void {
  let firstAt: number | undefined
  for (const signal of stopSignals) {
    process.on(signal, () => {
      if (firstAt === undefined) {
        firstAt = performance.now()
        onFirst(signal)
      } else if (performance.now() - firstAt > DUPLICATE_SIGNAL_MS) {
        onSecond(signal)
      }
    })
  }
}

/** Keeps SIGUSR1 from opening Node's inspector, through which any local user could run code in the process. */
export function ignoreInspectorSignal(): void {
  process.on('SIGUSR1', () => {})
}

/**
 * Shuts down gracefully on SIGINT, SIGTERM, uncaught exceptions and unhandled rejections: runs `close` and exits. The exit
 * code is 0 if a signal was the reason and `close` completed within `timeoutMs`, otherwise 1. A second signal exits at
 * once.
 */
export function closeOnSignals(log: Logger, timeoutMs: number, close: () => Promise<void>): void {
  const grace = closeWithGrace({ delay: timeoutMs, logger: log, skip: [...stopSignals] }, async ({ err }) => {
    if (err) log.fatal({ err }, 'stopping after an internal error')
    await close()
    log.info('stopped')
  })
  onStopSignals(
    (signal) => {
      log.info(`${signal}: stopping`)
      grace.close()
    },
    (signal) => {
      log.error(`second ${signal}: exiting at once`)
      process.exit(1)
    },
  )
}

/** A signal interrupted the command, which has rolled back its changes. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError'
  readonly exitCode: number

  constructor(signal: StopSignal) {
    super('interrupted; nothing was changed')
    this.exitCode = exitCodeOf(signal)
  }
}

/** Connects a transaction with the operator's signals. */
export interface Interruption {
  /** Aborts with an InterruptedError on the first SIGINT or SIGTERM before the commit. */
  readonly signal: AbortSignal
  /** Call it when the commit begins. From then on, a signal cannot roll back the transaction. */
  onCommit(): void
}

/** Aborts a command on SIGINT or SIGTERM. A second signal exits at once. */
export function abortOnSignals(): Interruption {
  const controller = new AbortController()
  let isCommitting = false
  onStopSignals(
    (signal) => {
      if (isCommitting) console.error('inventory: waiting for PostgreSQL to complete the commit')
      else controller.abort(new InterruptedError(signal))
    },
    (signal) => {
      if (!isCommitting) process.exit(exitCodeOf(signal))
      console.error('inventory: interrupted during the commit; it is unknown whether anything was changed')
      process.exit(exitCodes.outcomeUnknown)
    },
  )
  return {
    signal: controller.signal,
    onCommit() {
      isCommitting = true
    },
  }
}

/** The exit code that shells report for a process that a signal has terminated. */
function exitCodeOf(signal: StopSignal): number {
  return 128 + constants.signals[signal]
}
