import pg from 'pg'
import {
  causeOf,
  causesOf,
  DatabaseUnavailableError,
  FormerPrimaryError,
  ReadOnlyServerError,
  ServerChangedError,
} from './errors.ts'
import { effectOf, hasCause } from './sqlstate.ts'

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    return effectOf(error.code ?? '').isUnavailable && !isRuleViolation(error)
  }
  return !isProgrammingError(error)
}

/**
 * Whether the connection is lost or in an unknown state, so that it must not be used again. The error's severity cannot be
 * used for this, because PostgreSQL translates it.
 */
export function isFatal(error: unknown): boolean {
  if (isRemoteRefusal(error)) return false
  if (error instanceof pg.DatabaseError) return effectOf(error.code ?? '').isFatal
  return !isProgrammingError(error)
}

/** pg's messages about a connection that was lost, that was closed because the server changed, or that was lost before. */
const lossOfConnection =
  /^(Connection terminated( unexpectedly)?|Client has encountered a connection error and is not queryable)$/

/**
 * Returns why the connection of a statement was lost, so that a read may succeed on another one; undefined if it was not lost. A
 * connection that cannot be opened, or that has not responded in time, is not lost.
 */
export function lossOf(error: unknown): string | undefined {
  const cause = causeOf(error)
  return cause instanceof Error && isLoss(cause) ? cause.message : undefined
}

function isLoss(cause: Error): boolean {
  // 57P01: an administrator ended it. 57P02: another session crashed. 57P05: it was idle for too long.
  if (cause instanceof pg.DatabaseError) return isFatal(cause) && /^(08|57P0[125])/.test(cause.code ?? '')
  if ('code' in cause) return cause.code === 'ECONNRESET' || cause.code === 'EPIPE'
  return cause instanceof ServerChangedError || lossOfConnection.test(cause.message)
}

/**
 * Connection exceptions that a server reports about another server. 08007 (the outcome is unknown) is excluded, and so is
 * 08P01, which connection poolers report when they lose the server.
 */
const remoteConnectionStates = ['08000', '08001', '08003', '08004', '08006']

/** libpq's messages about an established connection that was lost, so that a statement may have taken effect. */
const lostConnection =
  /closed the connection unexpectedly|no connection to the server|connection not open|(receive|send) data|SSL|EOF/

/**
 * Whether the server could not reach another server that stores the rows, as Citus reports when a worker is down (SQLSTATE
 * class 08). Nothing has changed, and the connection to this server still works. Losing that connection is a different error,
 * which the server cannot report; a connection pooler that reports it does so with FATAL.
 */
function isRemoteRefusal(error: unknown): boolean {
  const cause = causeOf(error)
  return (
    cause instanceof pg.DatabaseError &&
    remoteConnectionStates.includes(cause.code ?? '') &&
    cause.severity !== 'FATAL' &&
    cause.severity !== 'PANIC' &&
    !lostConnection.test(cause.message)
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
  if (!wasRefused(error)) return false
  return !(error instanceof DatabaseUnavailableError) || hasCause(error, 'conflict') || isRemoteRefusal(error)
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

/** Whether a server did not respond in time while a connection was being opened. pg's error has no code. */
export function isConnectTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'timeout expired'
}

/** Messages of pg and of this service about a connection or a response that did not come in time. */
const lateness =
  /^(PostgreSQL did not respond in time|Query read timeout|all connections were in use for too long)$/

/** Whether a server that is connected did not respond in time, or all connections were in use. */
export function isLate(error: unknown): boolean {
  const cause = causeOf(error)
  return hasCause(error, 'canceled') || (cause instanceof Error && lateness.test(cause.message))
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

/** pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call. */
function isProgrammingError(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError
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
  return hasCause(error, 'readOnly') || causesOf(error).some((cause) => cause instanceof ReadOnlyServerError)
}

/** Whether the server is a former primary; with several hosts, whether one of them is. */
export function isFormerPrimary(error: unknown): boolean {
  return causesOf(error).some((cause) => cause instanceof FormerPrimaryError)
}
