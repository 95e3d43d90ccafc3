import { constants } from 'node:os'
import { setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { exitCodes, HOW_TO_FIND_OUT } from './exit-codes.ts'

/** npm forwards a Ctrl-C that the terminal has already sent to this process; within this time it is the same signal. */
const DUPLICATE_SIGNAL_MS = 200

/** How long the end of the process waits for its log to be read. */
const FLUSH_TIMEOUT_MS = 1000

/** The last one is sent when the terminal closes, for example because an SSH connection is lost. */
const interruptSignals: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP']

/** The server also stops on the other signals that a user sends to end a process. */
const stopSignals: readonly NodeJS.Signals[] = [...interruptSignals, 'SIGQUIT', 'SIGUSR2']

type OnSignal = (signal: NodeJS.Signals) => void

/** Calls `onFirst` on the first of the signals, and `onSecond` on a later one. */
function onSignals(signals: readonly NodeJS.Signals[], onFirst: OnSignal, onSecond: OnSignal): void {
  let firstAt: number | undefined
  for (const signal of signals) {
    process.on(signal, () => {
      const isFirst = firstAt === undefined
      firstAt ??= performance.now()
      if (isFirst) onFirst(signal)
      else if (performance.now() - firstAt > DUPLICATE_SIGNAL_MS) onSecond(signal)
    })
  }
}

/** Keeps SIGUSR1 from opening Node's inspector, through which any local user could run code in the process. */
export function ignoreInspectorSignal(): void {
  process.on('SIGUSR1', () => {})
}

/**
 * Shuts down gracefully on a stop signal, uncaught exceptions and unhandled rejections: runs `close` and exits. The exit
 * code is 0 if a signal was the reason and `close` completed within `timeoutMs`, otherwise 1. A second signal or error exits
 * at once.
 *
 * @returns the function that shuts down on an error
 */
export function closeOnSignals(
  log: Logger,
  timeoutMs: number,
  close: () => Promise<void>,
): (error: unknown) => void {
  let isStopping = false

  const stop = async (exitCode: number): Promise<void> => {
    isStopping = true
    void setTimeout(timeoutMs).then(() => {
      log.error(`not stopped within ${timeoutMs} ms: exiting`)
      process.exit(1)
    })
    await close()
    log.info('stopped')
    const flushed = new Promise<void>((resolve) => log.flush(() => resolve()))
    await Promise.race([flushed, setTimeout(FLUSH_TIMEOUT_MS)])
    process.exit(exitCode)
  }
  const onError = (err: unknown): void => {
    log.fatal({ err }, 'stopping after an error')
    // What fails while it stops is such an error, too.
    if (isStopping) process.exit(1)
    void stop(1)
  }
  process.on('uncaughtException', onError)
  process.on('unhandledRejection', onError)
  onSignals(
    stopSignals,
    (signal) => {
      log.info(`${signal}: stopping`)
      if (!isStopping) void stop(0)
    },
    (signal) => {
      log.error(`second ${signal}: exiting at once`)
      process.exit(1)
    },
  )
  return onError
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

/** Connects a transaction with the operator's signals. */
export interface Interruption {
  /** Aborts with an InterruptedError on the first SIGINT, SIGTERM or SIGHUP before the commit. */
  readonly signal: AbortSignal
  /** Call it when the commit begins. From then on, a signal cannot roll back the transaction. */
  onCommit(): void
}

/** Aborts a command on SIGINT, SIGTERM or SIGHUP. A second signal exits at once. */
export function abortOnSignals(): Interruption {
  const controller = new AbortController()
  let isCommitting = false
  onSignals(
    interruptSignals,
    (signal) => {
      if (isCommitting) console.error('inventory: waiting for PostgreSQL to complete the commit')
      else controller.abort(new InterruptedError(signal))
    },
    (signal) => {
      if (!isCommitting) process.exit(exitCodeOf(signal))
      console.error(
        `inventory: interrupted during the commit; it is unknown whether anything was changed. ${HOW_TO_FIND_OUT}`,
      )
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
function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}
