/**
 * PostgreSQL cannot serve now: it cannot be reached, is too busy, or refuses this service. The request itself is correct, so a
 * retry may succeed later. The cause is for logs only.
 */
export class DatabaseUnavailableError extends Error {
  override readonly name = 'DatabaseUnavailableError'
  readonly #onFailure: (() => void) | undefined

  /** `onFailure` is called for each caller that gets this error. It is not called if the statement is retried successfully. */
  constructor(cause: unknown, onFailure?: () => void) {
    super('The database is unavailable', { cause })
    this.#onFailure = onFailure
  }

  /** Call it once for each caller that gets this error. */
  countFailure(): void {
    this.#onFailure?.()
  }
}

/** Returns why the database is unavailable; any other error is returned unchanged. */
export function causeOf(error: unknown): unknown {
  return error instanceof DatabaseUnavailableError ? error.cause : error
}

/** The server is read-only: it is a standby, or `default_transaction_read_only` is on. */
export class ReadOnlyServerError extends Error {
  override readonly name = 'ReadOnlyServerError'

  constructor(isStandby: boolean) {
    super(
      isStandby
        ? 'the server is a standby, which is read-only'
        : 'the server is read-only: default_transaction_read_only is on',
    )
  }
}

/** The server is a former primary: this service has since used another server that was promoted. */
export class FormerPrimaryError extends Error {
  override readonly name = 'FormerPrimaryError'

  constructor(timeline: number, newest: number) {
    super(
      `the server is a former primary: it is on timeline ${timeline}, and timeline ${newest} was in use since; ` +
        'restart the service to use this server nevertheless',
    )
  }
}

/** A connection pooler has ignored the settings of the session, so that its time limits and its isolation level are unknown. */
export class IgnoredSettingsError extends Error {
  override readonly name = 'IgnoredSettingsError'

  constructor() {
    super('the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)')
  }
}

/** PostgreSQL did not respond to a statement in time. The connection must not be used again before it has. */
export class LateStatementError extends Error {
  override readonly name = 'LateStatementError'

  constructor() {
    super('PostgreSQL did not respond in time')
  }
}

/** All connections were renewed while a statement was running, so its result may come from the wrong server. */
export class ServerChangedError extends Error {
  override readonly name = 'ServerChangedError'

  constructor() {
    super('the connections were renewed while the statement was under way')
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
