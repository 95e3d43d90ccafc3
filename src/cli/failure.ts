/** A command cannot do what it was asked to, for a reason that its caller can mend; the message names it. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
}
