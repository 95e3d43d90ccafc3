import { CommanderError } from 'commander'
import { StatementError } from '../database/statement-error.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { explain } from '../process/explain.ts'
import { printableLines } from '../process/printable.ts'
import { InterruptedError } from '../process/signals.ts'

/** A command cannot do what it was asked to; the message names a reason that the operator can fix. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.failed) {
    super(message)
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

/** Writes a line to standard error, for people. */
export function report(line: string): void {
  console.error(printableLines(line))
}

/** Reports why a command failed, and returns the exit code. `variable` is the setting with the address of the database. */
export function reportFailure(error: unknown, variable: string | undefined): number {
  if (error instanceof CommanderError) {
    // Commander has already printed the usage error, or the help that was asked for.
    return error.exitCode === 0 ? exitCodes.done : exitCodes.wrongUsage
  }
  if (error instanceof InterruptedError || error instanceof CommandFailure) {
    if (error.message !== '') report(`inventory: ${error.message}`)
    return error.exitCode
  }
  report(`inventory: ${explain(error, variable)}`)
  return error instanceof StatementError && error.outcome === 'unknown'
    ? exitCodes.outcomeUnknown
    : exitCodes.failed
}
