/**
 * What is known about a statement that failed: it was not sent; PostgreSQL responded with an error, rolled back, and stayed ready for the
 * next statement, so that it has changed nothing; or neither.
 */
export type Outcome = 'notSent' | 'rolledBack' | 'unknown'

/**
 * PostgreSQL cannot serve now: it cannot be reached, is too busy, or does not let this service in. The request itself is correct, so a
 * retry may succeed later. The cause is for logs only.
 */
export class DatabaseUnavailableError extends Error {
  override readonly name = 'DatabaseUnavailableError'
  readonly outcome: Outcome

  constructor(cause: unknown, outcome: Outcome) {
    super('The database is unavailable', { cause })
    this.outcome = outcome
  }
}

/** Nobody knows whether a change was committed, because the response was lost, or it may be lost or take effect later. */
export class OutcomeUnknownError extends Error {
  override readonly name = 'OutcomeUnknownError'

  constructor(cause: unknown) {
    super('The outcome of the transaction is unknown', { cause })
  }
}

/** Returns the error of PostgreSQL or the connection that made the database unavailable or an outcome unknown, or any other error. */
export function originalError(error: unknown): unknown {
  const isWrapped = error instanceof DatabaseUnavailableError || error instanceof OutcomeUnknownError
  return isWrapped ? originalError(error.cause) : error
}
