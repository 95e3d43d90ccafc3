/**
 * PostgreSQL cannot serve now: it cannot be reached, is too busy, or refuses this service. The request itself is correct, so a
 * retry may succeed later. The cause is for logs only.
 */
export class DatabaseUnavailableError extends Error {
  override readonly name = 'DatabaseUnavailableError'

  constructor(cause: unknown) {
    super('The database is unavailable', { cause })
  }
}

/** Returns why the database is unavailable; any other error is returned unchanged. */
export function causeOf(error: unknown): unknown {
  return error instanceof DatabaseUnavailableError ? error.cause : error
}

/**
 * The connection was lost during COMMIT, so that nobody knows whether the transaction was committed, or PostgreSQL warned about
 * the commit, so that the change may be lost or take effect later.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = 'OutcomeUnknownError'

  constructor(cause: unknown) {
    super('The outcome of the transaction is unknown', { cause })
  }
}

/** Migrations or grants cannot run, or have failed. The message says why, what was changed, and what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError'
}
