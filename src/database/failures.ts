import pg from 'pg'

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

  /** Returns the same error with a more specific cause. */
  withCause(cause: unknown): DatabaseUnavailableError {
    return new DatabaseUnavailableError(cause, this.#onFailure)
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

/** The SQLSTATE of an error that PostgreSQL has reported, also if it is the cause of a DatabaseUnavailableError. */
function stateOf(error: unknown): string | undefined {
  const cause = causeOf(error)
  return cause instanceof pg.DatabaseError ? cause.code : undefined
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

/** All connections were renewed while a statement was running, so its result may come from the wrong server. */
export class ServerChangedError extends Error {
  override readonly name = 'ServerChangedError'

  constructor() {
    super('the connections were renewed while the statement was under way')
  }
}

/** SQLSTATE 25006: the transaction is read-only. */
const READ_ONLY_STATE = '25006'

/** SQLSTATE codes with which a server reports that it does not support a statement. */
const unsupportedStates = [
  '0A000', // feature not supported
  '42601', // syntax error
  '42704', // undefined object, such as a type
  '42883', // undefined function
]

/**
 * SQLSTATE codes, and classes of two characters, that concern the state of the server rather than the statement (PostgreSQL
 * manual, appendix A).
 */
const unavailableStates = new Set([
  '08', // connection exceptions
  '28', // invalid authorization, which the operator has to fix
  '53', // insufficient resources, such as too many connections
  '57', // operator intervention: shutdown, crash, cancellation by statement_timeout
  '58', // system errors
  READ_ONLY_STATE, // for example after a failover, when the server has become a standby
  '25P03', // idle_in_transaction_session_timeout
  '25P04', // transaction_timeout
  '3D000', // the database does not exist
  '40001', // serialization failure
  '40P01', // deadlock
  '42P01', // the table does not exist: the migrations have not been run
  '42703', // a column does not exist: the migrations have not been run
  '42501', // the role lacks a privilege for the table
  '55P03', // lock_timeout
  // Citus, or a server that is only compatible with PostgreSQL, lacks a feature. The request is correct.
  ...unsupportedStates,
])

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    const state = error.code ?? ''
    const isListed = unavailableStates.has(state) || unavailableStates.has(state.slice(0, 2))
    return isListed && !isRuleViolation(error)
  }
  return !isProgrammingError(error)
}

/** SQLSTATE codes and classes after which the server closes the connection, or the state of the session is unknown. */
const fatalStates = ['08', '25P03', '25P04', '28', '3D000', '53', '57P', '58', 'XX']

/**
 * Whether the connection is lost or in an unknown state, so that it must not be used again. The error's severity cannot be
 * used for this, because PostgreSQL translates it.
 */
export function isFatal(error: unknown): boolean {
  if (isRemoteRefusal(error)) return false
  if (error instanceof pg.DatabaseError) return fatalStates.some((state) => error.code?.startsWith(state))
  return !isProgrammingError(error)
}

/**
 * Connection exceptions that a server reports about another server. 08007 (the outcome is unknown) is excluded, and so is
 * 08P01, which connection poolers report when they lose the server.
 */
const remoteConnectionStates = ['08000', '08001', '08003', '08004', '08006']

/** libpq's messages about an established connection that was lost, so that a statement may have taken effect. */
const lostConnection =
  /closed the connection unexpectedly|no connection to the server|connection not open|(receive|send) data|SSL|EOF/

/** The server lost its connection to another server that stores rows. The statement was certainly rolled back. */
export class WorkerLostError extends Error {
  override readonly name = 'WorkerLostError'

  constructor(cause: unknown) {
    super('The database has lost a connection to one of its servers', { cause })
  }
}

/**
 * Whether the server could not reach another server that stores the rows, as Citus reports when a worker is down (SQLSTATE
 * class 08). Nothing has changed, and the connection to this server still works. Losing that connection is a different error,
 * which the server cannot report; a connection pooler that reports it does so with FATAL.
 */
export function isRemoteRefusal(error: unknown): boolean {
  const cause = causeOf(error)
  if (cause instanceof WorkerLostError) return true
  return isRemoteFailure(cause) && !lostConnection.test(cause.message)
}

/** Whether the server lost its connection to another server, so that a statement on one row may have taken effect. */
export function isRemoteLoss(error: unknown): boolean {
  const cause = causeOf(error)
  return isRemoteFailure(cause) && lostConnection.test(cause.message)
}

function isRemoteFailure(error: unknown): error is pg.DatabaseError {
  return (
    error instanceof pg.DatabaseError &&
    remoteConnectionStates.includes(error.code ?? '') &&
    error.severity !== 'FATAL' &&
    error.severity !== 'PANIC'
  )
}

/** SQLSTATE codes of statements that may have taken effect, or whose caller has already waited long enough. */
const unknownOutcomeStates = ['40003', '57014']

/** Whether PostgreSQL responded that it rejects the statement, so that it has certainly changed nothing. */
export function wasRefused(error: unknown): boolean {
  if (isRemoteRefusal(error)) return true
  const cause = causeOf(error)
  return (
    cause instanceof pg.DatabaseError && !isFatal(cause) && !unknownOutcomeStates.includes(cause.code ?? '')
  )
}

/** Whether PostgreSQL rejected a statement for a reason that may concern only one of the rows to change. */
export function mayConcernOneRow(error: unknown): boolean {
  if (mayConcernOneQuantity(error)) return true
  return wasRefused(error) && (isConflict(error) || isRemoteRefusal(error))
}

/** Whether PostgreSQL rejected a statement for a reason that may concern only one of the values to store. */
export function mayConcernOneQuantity(error: unknown): boolean {
  return wasRefused(error) && !(error instanceof DatabaseUnavailableError)
}

/** Whether this is a serialization failure (SQLSTATE 40001) or a deadlock (40P01). */
function isConflict(error: unknown): boolean {
  return ['40001', '40P01'].includes(stateOf(error) ?? '')
}

/** Whether PostgreSQL canceled a statement that did not get a lock in time (SQLSTATE 55P03). */
export function isLocked(error: unknown): boolean {
  return stateOf(error) === '55P03'
}

/**
 * Whether the server refuses the connection or cannot be trusted: the role, its password, the database name or a certificate
 * is wrong. Waiting does not help.
 */
export function isRefusal(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    return error.code?.startsWith('28') || error.code === '3D000' || isPoolerRefusal(error)
  }
  return isUntrusted(error)
}

/** Whether PgBouncer or RDS Proxy refuses the settings that a session requests in its startup message. */
export function isPoolerRefusal(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError &&
    /^unsupported startup parameter|support command-line options/.test(error.message)
  )
}

/**
 * Whether the server does not support TLS although its address requires it, or its certificate cannot be verified or is for
 * another host name. The codes are OpenSSL's X.509 errors with Node's names (Node.js manual, TLS).
 */
export function isUntrusted(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error) return typeof error.code === 'string' && certificateErrors.test(error.code)
  return error.message === 'The server does not support SSL connections'
}

const certificateErrors =
  /^(ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/

/** Whether the server has no connection left (SQLSTATE 53300); with several hosts, whether one of them has none. */
export function isOutOfConnections(error: unknown): boolean {
  const cause = causeOf(error)
  if (cause instanceof AggregateError) return cause.errors.some(isOutOfConnections)
  return stateOf(cause) === '53300'
}

/** Whether the role lacks a privilege (SQLSTATE 42501). */
export function isForbidden(error: unknown): boolean {
  return stateOf(error) === '42501'
}

/** Whether PostgreSQL canceled a statement, for example after `statement_timeout` (SQLSTATE 57014). */
export function isCanceled(error: unknown): boolean {
  return stateOf(error) === '57014'
}

/** Whether the statement does not work on this kind of relation (SQLSTATE 42809). */
export function isWrongKind(error: unknown): boolean {
  return stateOf(error) === '42809'
}

/** Whether this is an internal error of the server (SQLSTATE XX000). */
export function isInternalError(error: unknown): boolean {
  return stateOf(error) === 'XX000'
}

/** Whether a table does not exist, or is in a schema that the role may not use (SQLSTATE 42P01). */
export function isUnknownTable(error: unknown): boolean {
  return stateOf(error) === '42P01'
}

/** Whether a column does not exist (SQLSTATE 42703). */
export function isUnknownColumn(error: unknown): boolean {
  return stateOf(error) === '42703'
}

/** Whether the server does not support the statement for this table (SQLSTATE 0A000). */
export function isNotSupported(error: unknown): boolean {
  return stateOf(error) === '0A000'
}

/** Whether the server does not support a feature that a statement uses (SQLSTATE 0A000, 42601, 42704 or 42883). */
export function isUnsupportedFeature(error: unknown): boolean {
  return unsupportedStates.includes(stateOf(error) ?? '')
}

/**
 * Whether a connection cannot run a named statement again, because the type of a result column has changed since the statement
 * was parsed. PostgreSQL reports this before it runs anything, with the SQLSTATE of unsupported features.
 */
export function isOutdatedStatement(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery'
  )
}

/**
 * Whether Citus may not support a statement that PostgreSQL supports. Citus reports this with 0A000 or XX000, or with 22P02 if
 * it misreads data that it has moved between its servers.
 */
export function mayBeUnsupportedByCitus(error: unknown): boolean {
  return stateOf(error) === '22P02' || isNotSupported(error) || isInternalError(error)
}

/**
 * Whether the server may not know a correct statement: it does not support it, cannot parse it (SQLSTATE 42601), or reports
 * XX000, as Citus does for some statements.
 */
export function mayBeUnknown(error: unknown): boolean {
  return stateOf(error) === '42601' || isNotSupported(error) || isInternalError(error)
}

/** pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call. */
function isProgrammingError(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError
}

/** Whether a row violates a unique constraint (SQLSTATE 23505). */
export function isDuplicate(error: unknown): boolean {
  return stateOf(error) === '23505'
}

/**
 * Whether the database rejects the values: because of a constraint (SQLSTATE class 23), the range of a column or an expression of
 * the operator's own (class 22: out of range, divided by zero), the RAISE of a trigger, the check option of a view (44000), or a
 * row security policy. The latter has the SQLSTATE of a missing privilege. Of class 22, the codes that PostgreSQL has added
 * (22P) are about text and COPY, not about a quantity; Citus uses one of them for statements that it does not support.
 */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError)) return false
  if (/^(23|22[^P]|44000|P0001)/.test(error.code ?? '') || error.routine === 'ExecWithCheckOptions')
    return true
  return error.routine === 'exec_stmt_raise' && !SERVER_STATE.test(error.code ?? '')
}

/**
 * SQLSTATE classes with which a trigger says that its RAISE is not about the values: the server is read-only or busy, a conflict
 * that a retry resolves, or damage.
 */
const SERVER_STATE = /^(08|25|40|53|55|57|58|XX)/

/** Returns PostgreSQL's message with its details, such as the row that violates a constraint. */
export function messageWithDetail({ message, detail }: pg.DatabaseError): string {
  return detail === undefined ? message : `${message} (${detail.replace(/\.$/, '')})`
}

/** Whether the server is read-only; with several hosts, whether one of them is. */
export function isReadOnly(error: unknown): boolean {
  const cause = causeOf(error)
  if (cause instanceof AggregateError) return cause.errors.some(isReadOnly)
  if (cause instanceof pg.DatabaseError) return cause.code === READ_ONLY_STATE
  return cause instanceof ReadOnlyServerError
}

/** Whether the server is a former primary; with several hosts, whether one of them is. */
export function isFormerPrimary(error: unknown): boolean {
  const cause = causeOf(error)
  if (cause instanceof AggregateError) return cause.errors.some(isFormerPrimary)
  return cause instanceof FormerPrimaryError
}
