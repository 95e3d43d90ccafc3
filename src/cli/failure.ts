import { CommanderError } from 'commander'
import { OperatorError } from '../database/operator-error.ts'
import { StatementError } from '../database/statement-error.ts'
import { explain } from '../process/explain.ts'
import { report } from '../process/terminal.ts'
import { exitCodes } from './exit-codes.ts'
import { InterruptedError } from './interruption.ts'

/** A command cannot do what it was asked to; the message names a reason that the operator can fix. */
export class CommandFailure extends OperatorError {
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.failed, details: readonly string[] = []) {
    super(message, { details })
    this.exitCode = exitCode
  }
}

/** Returns the failure of a command that needs an option to confirm what it cannot undo. */
export function unconfirmed(consequence: string, option: string): CommandFailure {
  return new CommandFailure(
    `${consequence}; nothing was changed. To confirm, add ${option}.`,
    exitCodes.unconfirmed,
  )
}

/** Reports why a command failed, and returns the exit code. `variable` is the setting with the address of the database. */
export function reportFailure(error: unknown, variable: string | undefined): number {
  if (error instanceof CommanderError) {
    // Commander has already printed the usage error, or the help that was asked for.
    return error.exitCode === 0 ? exitCodes.done : exitCodes.wrongUsage
  }
  const [message, ...details] = error instanceof InterruptedError ? [error.message] : explain(error, variable)
  if (message) report(`inventory: ${message}`, ...details)
  if (error instanceof InterruptedError || error instanceof CommandFailure) return error.exitCode
  return error instanceof StatementError && error.outcome === 'unknown'
    ? exitCodes.outcomeUnknown
    : exitCodes.failed
}
