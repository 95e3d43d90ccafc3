/** What an operator can fix. The message is complete: what happened, what it means and what to do. It contains no secret. */
export class OperatorError extends Error {
  override readonly name: string = 'OperatorError'
  /** What the message introduces, in lines of their own. */
  readonly details: readonly string[]

  constructor(message: string, { cause, details = [] }: ErrorOptions & { details?: readonly string[] } = {}) {
    super(message, { cause })
    this.details = details
  }
}

/** Returns the message of an error; any other thrown value as text. If a host has several addresses, the error has one for each. */
export function toMessage(error: unknown): string {
  if (error instanceof AggregateError) return toMessage(error.errors[0])
  return error instanceof Error ? error.message : String(error)
}

/** Returns why a file cannot be read, without its name, which may be the secret itself. */
export function describeReadFailure(error: unknown): string {
  return toMessage(error).replace(/, .*/s, '')
}
