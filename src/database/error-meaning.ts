import pg from 'pg'
import { ConnectionFault, causeOf, DatabaseUnavailableError } from './errors.ts'

/** What an error of PostgreSQL means for the caller of a statement, and whether its connection can be used again. */
interface Meaning {
  readonly cause:
    | 'busy'
    | 'canceled'
    | 'conflict'
    | 'diskFull'
    | 'forbidden'
    | 'internal'
    | 'locked'
    | 'lost'
    | 'outOfConnections'
    | 'readOnly'
    | 'refused'
    | 'rule'
    | 'unknownColumn'
    | 'unknownTable'
    | 'unsupported'
  /** The server cannot serve now; the statement is correct. */
  readonly isUnavailable?: true
  /** The server closes the connection, or the state of the session is unknown. */
  readonly isFatal?: true
  /** The statement itself is not possible here, as readiness finds out: a table, a privilege or a feature is missing. */
  readonly isUnready?: true
}

const LOST: Meaning = { cause: 'lost', isUnavailable: true, isFatal: true }
const ENDED: Meaning = { cause: 'canceled', isUnavailable: true, isFatal: true }
const REFUSED: Meaning = { cause: 'refused', isUnavailable: true, isFatal: true }
const CONFLICT: Meaning = { cause: 'conflict', isUnavailable: true }
const UNSUPPORTED: Meaning = { cause: 'unsupported', isUnavailable: true, isUnready: true }
const RULE: Meaning = { cause: 'rule' }
const INTERNAL: Meaning = { cause: 'internal', isFatal: true }

/**
 * The meanings of SQLSTATE codes, or of all that begin alike (PostgreSQL manual, appendix A). Any other code rejects the statement,
 * which would fail again.
 */
const meanings: Readonly<Record<string, Meaning | undefined>> = {
  '08': LOST, // connection exceptions
  '0A000': UNSUPPORTED, // by Citus or a server that is only compatible with PostgreSQL
  '22': RULE, // out of range, divided by zero: a column or an expression of the operator's own
  '22P': undefined, // about text and COPY, not about a quantity; Citus uses one for statements that it does not support
  '23': RULE, // constraints
  '25006': { cause: 'readOnly', isUnavailable: true }, // for example after a failover
  '25P03': ENDED, // idle_in_transaction_session_timeout
  '25P04': ENDED, // transaction_timeout
  '28': REFUSED, // invalid authorization
  '3D000': REFUSED, // the database does not exist
  '40001': CONFLICT, // serialization failure
  '40P01': CONFLICT, // deadlock
  '42501': { cause: 'forbidden', isUnavailable: true, isUnready: true },
  '42601': UNSUPPORTED, // syntax error
  '42703': { cause: 'unknownColumn', isUnavailable: true, isUnready: true },
  '42704': UNSUPPORTED, // undefined object, such as a type
  '42883': UNSUPPORTED, // undefined function
  '42P01': { cause: 'unknownTable', isUnavailable: true, isUnready: true },
  '44000': RULE, // the check option of a view
  '53': { cause: 'busy', isUnavailable: true, isFatal: true }, // insufficient resources
  '53100': { cause: 'diskFull', isUnavailable: true, isFatal: true },
  '53300': { cause: 'outOfConnections', isUnavailable: true, isFatal: true },
  '55P03': { cause: 'locked', isUnavailable: true }, // lock_timeout
  '57': { cause: 'busy', isUnavailable: true }, // operator intervention
  '57014': { cause: 'canceled', isUnavailable: true }, // for example by statement_timeout
  '57P': LOST, // shutdown or crash
  '58': LOST, // system errors
  P0001: RULE, // RAISE
  XX: INTERNAL,
}

function meaningOf(error: pg.DatabaseError): Meaning | undefined {
  const code = error.code ?? ''
  const known = [code, code.slice(0, 3), code.slice(0, 2)].find((beginning) => beginning in meanings)
  const meaning = meanings[known ?? '']
  return meaning?.isUnready && isInFunction(error) ? undefined : meaning
}

/**
 * Whether a function or trigger of the operator's own failed, for example because its table is missing. PostgreSQL adds a context
 * to errors inside of functions; Citus, to those of another server.
 */
export function isInFunction(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError) || error.where === undefined) return false
  return !/^while executing command on /m.test(error.where)
}

/** Whether an error has this cause, also behind a DatabaseUnavailableError. */
export function hasCause(error: unknown, name: Meaning['cause'] | ConnectionFault['kind']): boolean {
  const cause = causeOf(error)
  if (cause instanceof ConnectionFault) return cause.kind === name
  return cause instanceof pg.DatabaseError && meaningOf(cause)?.cause === name
}

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return !isProgrammingError(error)
  return meaningOf(error)?.isUnavailable === true && !isRuleViolation(error)
}

/**
 * Whether the connection is lost or in an unknown state, so that it must not be used again. The error's severity cannot be
 * used for this, because PostgreSQL translates it.
 */
export function isFatal(error: unknown): boolean {
  if (isRemoteRefusal(error)) return false
  if (!(error instanceof pg.DatabaseError)) return !isProgrammingError(error)
  return meaningOf(error)?.isFatal === true
}

/** pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call. */
function isProgrammingError(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError
}

/** Messages about a connection that was lost or closed, of pg and of the system. */
const lossOfConnection =
  /^(Connection terminated( unexpectedly)?|Client has encountered .* not queryable|(read|write) (ECONNRESET|EPIPE))$/

/**
 * Returns why the connection of a statement was lost, so that a read may succeed on another one; undefined if it was not lost. A
 * connection that cannot be opened, or that has not responded in time, is not lost.
 */
export function lossOf(error: unknown): string | undefined {
  const cause = causeOf(error)
  if (!(cause instanceof Error)) return undefined
  return hasCause(cause, 'lost') || lossOfConnection.test(cause.message) ? cause.message : undefined
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
export function isRemoteRefusal(error: unknown): boolean {
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
 * Whether the database rejects the values: because of a constraint, the range of a column, the RAISE of a trigger, the check option
 * of a view, or a row security policy. The latter has the SQLSTATE of a missing privilege.
 */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError)) return false
  if (error.routine === 'ExecWithCheckOptions' || meaningOf(error) === RULE) return true
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

/**
 * Whether a connection cannot run a named statement again, because the type of a result column has changed since the statement
 * was parsed. PostgreSQL reports this before it runs anything, with the SQLSTATE of unsupported features.
 */
export function isOutdatedStatement(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery'
  )
}
