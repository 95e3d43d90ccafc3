import { exitCodes } from '../process/exit-codes.ts'

/** A command cannot do what it was asked to, for a reason that its caller can fix; the message names it. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.failed) {
    super(message)
    this.exitCode = exitCode
  }
}
