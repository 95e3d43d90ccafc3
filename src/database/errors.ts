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

/** What this process finds out itself about a connection; `hasCause` tells the kinds apart. */
export class ConnectionFault extends Error {
  override readonly name = 'ConnectionFault'

  /**
   * - `readOnly`: the server is a standby, or `default_transaction_read_only` is on.
   * - `formerPrimary`: another server, which was promoted, was in use since.
   * - `settings`: a connection pooler has ignored the settings of the session: its time limits and its isolation level.
   * - `late`: no response came in time. The connection must not be used again before it has.
   * - `lost`: all connections were renewed meanwhile, so the result may come from the wrong server.
   */
  readonly kind: 'readOnly' | 'formerPrimary' | 'settings' | 'late' | 'lost'

  constructor(kind: ConnectionFault['kind'], message: string) {
    super(message)
    this.kind = kind
  }
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
