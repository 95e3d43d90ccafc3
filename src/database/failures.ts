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

  /** The same for a cause that says more. */
  because(cause: unknown): DatabaseUnavailableError {
    return new DatabaseUnavailableError(cause, this.#onLoss)
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
  '28', // authorization refused, which the operator has to fix
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
  '0A000', // not supported by a server that only speaks PostgreSQL's protocol, nor by Citus: no fault of the request
  '42883', // no such function: the same
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
 * True where the connection itself is lost or in an unknown state, so that it must not be used again. Not known from the
 * error's severity, which PostgreSQL translates.
 */
export function isFatal(error: unknown): boolean {
  if (isRemoteRefusal(error)) return false
  if (error instanceof pg.DatabaseError) return fatalStates.some((state) => error.code?.startsWith(state))
  return !isProgrammingError(error)
}

/** Connection exceptions but 08007 (the outcome is unknown) and 08P01, with which poolers report a server that they lost. */
const remoteConnectionStates = ['08000', '08001', '08003', '08004', '08006']

/** How libpq says that a connection was lost which had been there, so that a statement may have taken effect. */
const lostConnection =
  /closed the connection unexpectedly|no connection to the server|connection not open|(receive|send) data|SSL|EOF/

/** A server lost its connection to another one that has rows, during a statement that is undone for certain. */
export class WorkerLostError extends Error {
  override readonly name = 'WorkerLostError'

  constructor(cause: unknown) {
    super('The database has lost a connection to one of its servers', { cause })
  }
}

/**
 * True where the server could not reach another one that has the rows, as Citus says when a worker is down (SQLSTATE class
 * 08): it has changed nothing, and its own connection is as good as before. A connection of this service that is lost is
 * no such error, as no server can report it; a pooler that does so ends the connection with FATAL.
 */
export function isRemoteRefusal(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  if (cause instanceof WorkerLostError) return true
  return isRemoteFailure(cause) && !lostConnection.test(cause.message)
}

/** True where the server lost its connection to another one, so that a statement of one row may have taken effect. */
export function isRemoteLoss(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
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

/** SQLSTATE codes of statements that may have taken effect, or whose caller has waited for long enough. */
const unknownOutcomeStates = ['40003', '57014']

/** True where PostgreSQL has answered that it refuses the statement: then it has changed nothing, for certain. */
export function wasRefused(error: unknown): boolean {
  if (isRemoteRefusal(error)) return true
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return (
    cause instanceof pg.DatabaseError && !isFatal(cause) && !unknownOutcomeStates.includes(cause.code ?? '')
  )
}

/** True where PostgreSQL has refused a statement for a reason that may lie in one of the rows that it was to change. */
export function mayConcernOneRow(error: unknown): boolean {
  if (!wasRefused(error)) return false
  return !(error instanceof DatabaseUnavailableError) || isConflict(error.cause) || isRemoteRefusal(error)
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
 * password, the database's name or a certificate is wrong, which does not go away by waiting.
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

/** True for an internal error of the server (SQLSTATE XX000). */
export function isInternalError(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === 'XX000'
}

/** True where a column does not exist (SQLSTATE 42703). */
export function isUnknownColumn(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return cause instanceof pg.DatabaseError && cause.code === '42703'
}

/** True where the server does not support the statement for this table (SQLSTATE 0A000). */
export function isNotSupported(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return cause instanceof pg.DatabaseError && cause.code === '0A000'
}

/**
 * True where the server does not know what a statement of this service uses: its syntax (SQLSTATE 42601), a function
 * (42883), a type or another object (42704), or it does not support it (0A000).
 */
export function isUnsupportedFeature(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  return cause instanceof pg.DatabaseError && ['0A000', '42601', '42704', '42883'].includes(cause.code ?? '')
}

/**
 * True if a connection cannot run a named statement again, because a column of its result has another type than when it was
 * parsed there. PostgreSQL reports it with the SQLSTATE of unsupported features, before it runs anything.
 */
export function isOutdatedStatement(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery'
  )
}

/**
 * True where a statement that PostgreSQL runs may not be one that Citus runs: it answers those with 0A000, with XX000, and
 * where it misreads what it has moved between its servers itself, with 22P02.
 */
export function mayBeUnsupportedByCitus(error: unknown): boolean {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  const isMisread = cause instanceof pg.DatabaseError && cause.code === '22P02'
  return isMisread || isNotSupported(cause) || isInternalError(cause)
}

/**
 * True where a statement that is right may be one that the server does not know: it does not support it, cannot read it
 * (SQLSTATE 42601), or answers with XX000, as Citus does for some.
 */
export function mayBeUnknown(error: unknown): boolean {
  const isUnreadable = error instanceof pg.DatabaseError && error.code === '42601'
  return isUnreadable || isNotSupported(error) || isInternalError(error)
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
