import { constants } from 'node:os'
import { OperatorError } from '../database/operator-error.ts'

/** Exit codes of the command line. Scripts rely on them, so none ever changes its meaning. */
export const exitCodes = {
  done: 0,
  failed: 1,
  wrongUsage: 2,
  refused: 3,
  outcomeUnknown: 4,
  unconfirmed: 5,
  outputClosed: 141,
} as const

/** The exit codes, for the help text. */
export const exitCodeHelp = `
Exit codes:
  0  done
  1  failed; 2 wrong usage. Nothing was changed, unless the message says what was
  3  import: the file has errors or is incomplete, or the database rejects its
     entries; status and migrate status: something is missing, as they show;
     history: it is off, so that changes are missing
  4  it is unknown whether the change was made; the message says how to find out
  5  nothing was changed: confirmation is required, as the message says
  130, 143, 129
     interrupted by Ctrl-C, SIGTERM or a closed terminal; nothing was changed,
     unless the message says what was
  141
     the output pipe was closed; what the command had changed before remains`

/** A command cannot do what it was asked to; the message names a reason that the operator can fix. */
export class CommandFailure extends OperatorError {
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.failed, details: readonly string[] = []) {
    super(message, { details })
    this.exitCode = exitCode
  }
}

/** A signal interrupted the command. The exit code is the one that shells report for a process that the signal has terminated. */
export class InterruptedError extends CommandFailure {
  constructor(signal: NodeJS.Signals, consequence: string) {
    super(`interrupted; ${consequence}`, 128 + constants.signals[signal])
  }
}

/** Returns the failure of a command that needs an option to confirm what it cannot undo. */
export function unconfirmed(consequence: string, option: string): CommandFailure {
  return new CommandFailure(
    `${consequence}; nothing was changed. To confirm, add ${option}.`,
    exitCodes.unconfirmed,
  )
}
