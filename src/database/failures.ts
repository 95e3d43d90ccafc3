import pg from 'pg'

/**
 * PostgreSQL cannot be asked now: it is away, too busy, or refuses this service. Nothing is wrong with the
 * request, so trying again later may help. The cause says what happened; it is for logs alone.
 */
export class DatabaseUnavailableError extends Error {
  override readonly name = 'DatabaseUnavailableError'
  readonly #onLoss: (() => void) | undefined

  /** `onLoss` is called for each caller that gets this error in the end; a statement that is tried again has none. */
  constructor(cause: unknown, onLoss?: () => void) {
    super('The database is unavailable', { cause })
    this.#onLoss = onLoss
  }

  /** To be called once for each caller that gets nothing because of this. */
  countLoss(): void {
    this.#onLoss?.()
  }
}

/** The server takes no writes: it is a standby, or `default_transaction_read_only` is on. */
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

/** The server was the primary before another one was promoted, which this service has seen since. */
export class FormerPrimaryError extends Error {
  override readonly name = 'FormerPrimaryError'

  constructor(timeline: number, newest: number) {
    super(
      `the server is a former primary: it is on timeline ${timeline}, and timeline ${newest} was in use since; ` +
        'restart the service if this server is to be used all the same',
    )
  }
}

/** Another server has taken over while a statement was under way; its outcome is of no use. */
export class ServerChangedError extends Error {
  override readonly name = 'ServerChangedError'

  constructor() {
    super('the connections were renewed while the statement was under way')
  }
}

/** SQLSTATE 25006: the transaction is read-only. */
const READ_ONLY_STATE = '25006'

/**
 * SQLSTATE codes, and classes of them by their first two characters, that speak of the server's state and
 * not of the statement (PostgreSQL manual, appendix A).
 */
const unavailableStates = new Set([
  '08', // connection exceptions
  '28', // authorization refused: the operator's to mend
  '53', // insufficient resources, too many connections among them
  '57', // operator intervention: shutdown, crash, cancelled by statement_timeout
  '58', // system errors
  READ_ONLY_STATE, // this server is a standby now
  '25P03', // idle in transaction for too long
  '3D000', // no such database
  '40001', // serialization failure
  '40P01', // deadlock
  '42P01', // no such table: the migrations have not been run
  '42703', // no such column: the same
  '42501', // no permission for the table
  '55P03', // lock_timeout
])

/** True where the failure is the database's and not the statement's, so that the caller should try again later. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    const state = error.code ?? ''
    return unavailableStates.has(state) || unavailableStates.has(state.slice(0, 2))
  }
  return !isProgrammingError(error)
}

/** SQLSTATE codes and classes with which the server ends the connection, or may have lost its own state. */
const fatalStates = ['08', '25P03', '25P04', '28', '3D000', '53', '57P', '58', 'XX']

/**
 * True where the connection itself is lost or in an unknown state, so that it must not be used again. Not told by the
 * error's severity, which PostgreSQL translates.
 */
export function isFatal(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return fatalStates.some((state) => error.code?.startsWith(state))
  return !isProgrammingError(error)
}

/** SQLSTATE codes of statements that may have taken effect, or whose caller has waited for long enough. */
const unknownOutcomeStates = ['40003', '57014']

/** True where PostgreSQL has answered that it refuses the statement: then it has changed nothing, for certain. */
export function wasRefused(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return (
    cause instanceof pg.DatabaseError && !isFatal(cause) && !unknownOutcomeStates.includes(cause.code ?? '')
  )
}

/** True where PostgreSQL has refused a statement for a reason that may lie in one of the rows that it was to change. */
export function mayConcernOneRow(error: unknown): boolean {
  if (!wasRefused(error)) return false
  return !(error instanceof DatabaseUnavailableError) || isConflict(error.cause)
}

/** True for a serialization failure (SQLSTATE 40001) or a deadlock (40P01). */
function isConflict(error: unknown): boolean {
  return error instanceof pg.DatabaseError && (error.code === '40001' || error.code === '40P01')
}

/** True where PostgreSQL has refused a statement because a lock could not be had in time (SQLSTATE 55P03). */
export function isLocked(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return cause instanceof pg.DatabaseError && cause.code === '55P03'
}

/**
 * True where the server refused to let this service in, or this service does not trust the server: the role, its
 * password, the database's name or a certificate is wrong, which no waiting mends.
 */
export function isRefusal(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    return error.code?.startsWith('28') || error.code === '3D000' || isPoolerRefusal(error)
  }
  return isUntrusted(error)
}

/** True where PgBouncer, or RDS Proxy, refuses the settings that a session makes for itself at its start. */
export function isPoolerRefusal(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError &&
    /^unsupported startup parameter|support command-line options/.test(error.message)
  )
}

/**
 * True where the server has no TLS, or a certificate that its address asks to be verified and that cannot be: by the
 * X.509 error codes of OpenSSL as Node names them (Node.js manual, TLS), or for another host name.
 */
export function isUntrusted(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error) return typeof error.code === 'string' && certificateFaults.test(error.code)
  return error.message === 'The server does not support SSL connections'
}

const certificateFaults =
  /^(ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/

/** True where the role lacks a privilege (SQLSTATE 42501). */
export function isForbidden(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '42501'
}

/** True where PostgreSQL has cancelled a statement, as it does after a time limit (SQLSTATE 57014). */
export function isCancelled(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return cause instanceof pg.DatabaseError && cause.code === '57014'
}

/** True where the statement does not apply to this kind of relation (SQLSTATE 42809). */
export function isWrongKind(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '42809'
}

/** pg raises plain errors for every failure of a connection; those of a faulty call are subclasses. */
function isProgrammingError(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError
}

/** True where a row would have broken a rule of uniqueness (SQLSTATE 23505). */
export function isDuplicate(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '23505'
}

/**
 * True where a rule in the database refuses the values: a constraint (SQLSTATE class 23), or a trigger's RAISE EXCEPTION
 * (P0001).
 */
export function isRuleViolation(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(23|P0001)/.test(error.code ?? '')
}

/** True where the server takes no writes; of several hosts, where one of them does not. */
export function isReadOnly(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  if (cause instanceof AggregateError) return cause.errors.some(isReadOnly)
  if (cause instanceof pg.DatabaseError) return cause.code === READ_ONLY_STATE
  return cause instanceof ReadOnlyServerError
}

/** True where the server is no longer the one that the service may use. */
export function isFormerPrimary(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  if (cause instanceof AggregateError) return cause.errors.some(isFormerPrimary)
  return cause instanceof FormerPrimaryError
}
