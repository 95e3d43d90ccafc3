/** What is known about a statement that failed: it was not sent, PostgreSQL has rolled it back and was ready again, or neither. */
export type Outcome = 'notSent' | 'rolledBack' | 'unknown'

/** PostgreSQL cannot serve now: a retry may succeed later. The cause is for logs only. */
export class DatabaseUnavailableError extends Error {
  override readonly name: string = 'DatabaseUnavailableError'
  readonly outcome: Outcome

  constructor(cause: unknown, outcome: Outcome) {
    super('The database is unavailable', { cause })
    this.outcome = outcome
  }
}

/** Nobody knows whether a change was or will be committed. */
export class OutcomeUnknownError extends DatabaseUnavailableError {
  override readonly name = 'OutcomeUnknownError'

  constructor(cause: unknown) {
    super(cause, 'unknown')
  }
}

/** Returns the error of PostgreSQL or the connection behind one of these; any other error as it is. */
export function originalError(error: unknown): unknown {
  return error instanceof DatabaseUnavailableError ? originalError(error.cause) : error
}
