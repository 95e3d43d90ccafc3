import pg from 'pg'
import { ConnectionFault, causeOf, DatabaseUnavailableError } from './errors.ts'

/** What has happened, as far as callers and operators have to tell it apart. */
type Cause =
  | ConnectionFault['kind']
  | 'busy'
  | 'canceled'
  | 'conflict'
  | 'diskFull'
  | 'forbidden'
  | 'internal'
  | 'locked'
  | 'noResponse'
  | 'other'
  | 'outOfConnections'
  | 'outdated'
  | 'refused'
  | 'rule'
  | 'unknownColumn'
  | 'unknownTable'
  | 'unsupported'
  | 'untrusted'

/** What an error means for the caller of a statement, and whether its connection can be used again. */
interface Meaning {
  readonly cause: Cause
  /** The server cannot serve now; the statement is correct. */
  readonly isUnavailable?: true
  /** The connection is lost or closed, or the state of the session is unknown. */
  readonly isFatal?: true
  /** The statement itself is not possible here, as readiness finds out: a table, a privilege or a feature is missing. */
  readonly isUnready?: true
}

const lost = (cause: Cause): Meaning => ({ cause, isUnavailable: true, isFatal: true })
const CONFLICT: Meaning = { cause: 'conflict', isUnavailable: true }
const UNSUPPORTED: Meaning = { cause: 'unsupported', isUnavailable: true, isUnready: true }
const RULE: Meaning = { cause: 'rule' }

/**
 * The meanings of SQLSTATE codes, or of all that begin alike (PostgreSQL manual, appendix A). Any other code rejects the statement,
 * which would fail again. The severity tells nothing, because PostgreSQL translates it.
 */
const meanings: Readonly<Record<string, Meaning | undefined>> = {
  '08': lost('lost'), // connection exceptions
  '0A000': UNSUPPORTED, // by Citus or a server that is only compatible with PostgreSQL
  '22': RULE, // out of range, divided by zero: a column or an expression of the operator's own
  '22P': undefined, // about text and COPY, not about a quantity; Citus uses one for statements that it does not support
  '23': RULE, // constraints
  '25006': { cause: 'readOnly', isUnavailable: true }, // for example after a failover
  '25P03': lost('canceled'), // idle_in_transaction_session_timeout
  '25P04': lost('canceled'), // transaction_timeout
  '28': lost('refused'), // invalid authorization
  '3D000': lost('refused'), // the database does not exist
  '40001': CONFLICT, // serialization failure
  '40003': lost('lost'), // the outcome is unknown
  '40P01': CONFLICT, // deadlock
  '42501': { cause: 'forbidden', isUnavailable: true, isUnready: true },
  '42601': UNSUPPORTED, // syntax error
  '42703': { cause: 'unknownColumn', isUnavailable: true, isUnready: true },
  '42704': UNSUPPORTED, // undefined object, such as a type
  '42883': UNSUPPORTED, // undefined function
  '42P01': { cause: 'unknownTable', isUnavailable: true, isUnready: true },
  '44000': RULE, // the check option of a view
  '53': lost('busy'), // insufficient resources
  '53100': lost('diskFull'),
  '53300': lost('outOfConnections'),
  '55P03': { cause: 'locked', isUnavailable: true }, // lock_timeout
  '57': { cause: 'busy', isUnavailable: true }, // operator intervention
  '57014': { cause: 'canceled', isUnavailable: true }, // for example by statement_timeout
  '57P': lost('lost'), // shutdown or crash
  '58': lost('lost'), // system errors
  P0001: RULE, // RAISE
  XX: lost('internal'), // damage; Citus reports some failures of its workers like that
}

/** The causes of errors without SQLSTATE: those of pg and pg-pool by message, those of the system and OpenSSL by message or code. */
const otherErrors: readonly (readonly [Cause, RegExp])[] = [
  ['late', /^(Query read timeout|timeout exceeded when trying to connect)$/],
  [
    'lost',
    /^(Connection terminated( unexpectedly)?|Client .* not queryable|(read|write) (ECONNRESET|EPIPE))$/,
  ],
  ['noResponse', /^(timeout expired|Connection terminated due to connection timeout)$/],
  [
    'untrusted',
    /^(The server does not support SSL|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/,
  ],
]

/**
 * SQLSTATE classes with which a trigger says that its RAISE is not about the values: the server is read-only or busy, a conflict
 * that a retry resolves, or damage.
 */
const SERVER_STATE = /^(08|25|40|53|55|57|58|XX)/

/** How poolers such as PgBouncer and RDS Proxy refuse the settings that a session requests in its startup message. */
const POOLER_REFUSAL = /^unsupported startup parameter|support command-line options/

function meaningOf(error: unknown): Meaning | undefined {
  if (error instanceof ConnectionFault) return lost(error.kind)
  if (error instanceof pg.DatabaseError) return meaningOfReport(error)
  // pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call.
  if (!(error instanceof Error) || /^(Type|Range|Syntax)Error$/.test(error.name)) return undefined
  const texts = [error.message, 'code' in error ? String(error.code) : '']
  return lost(otherErrors.find(([, pattern]) => texts.some((text) => pattern.test(text)))?.[0] ?? 'other')
}

/** Returns the meaning of an error that the server, or a pooler in its place, has reported. */
function meaningOfReport(error: pg.DatabaseError): Meaning | undefined {
  const { code = '', routine, message } = error
  if (POOLER_REFUSAL.test(message)) return lost('settings')
  // The type of a result column has changed since the connection prepared the statement. Nothing has run.
  if (routine === 'RevalidateCachedQuery') return lost('outdated')
  // A row security policy has the SQLSTATE of a missing privilege; a RAISE may have any.
  if (routine === 'ExecWithCheckOptions') return RULE
  if (routine === 'exec_stmt_raise' && !SERVER_STATE.test(code)) return RULE
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

/** Whether an error has one of these causes, also behind a DatabaseUnavailableError. */
export function hasCause(error: unknown, ...causes: readonly Cause[]): boolean {
  const meaning = meaningOf(causeOf(error))
  return meaning !== undefined && causes.includes(meaning.cause)
}

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  return meaningOf(error)?.isUnavailable === true
}

/** Whether the connection is lost or in an unknown state, so that it must not be used again. */
export function isFatal(error: unknown): boolean {
  return meaningOf(error)?.isFatal === true
}

/**
 * Whether the server refuses the connection or cannot be trusted: the role, its password, the database name, a certificate or a
 * connection pooler is wrong. Waiting does not help.
 */
export function isRefusal(error: unknown): boolean {
  return hasCause(error, 'refused', 'settings', 'untrusted')
}

/**
 * Returns why the connection of a statement was lost, so that a read may succeed on another one; undefined if it was not lost. A
 * connection that cannot be opened, or that has not responded in time, is not lost.
 */
export function lossOf(error: unknown): string | undefined {
  const cause = causeOf(error)
  return cause instanceof Error && hasCause(cause, 'lost') ? cause.message : undefined
}

/** Whether PostgreSQL responded that it rejects the statement, so that it has certainly changed nothing. */
export function wasRefused(error: unknown): boolean {
  const cause = causeOf(error)
  return cause instanceof pg.DatabaseError && !isFatal(cause) && !hasCause(cause, 'canceled')
}

/** Whether PostgreSQL rejected a statement for a reason that may concern only one of the rows to change. */
export function mayConcernOneRow(error: unknown): boolean {
  return wasRefused(error) && (!(error instanceof DatabaseUnavailableError) || hasCause(error, 'conflict'))
}

/**
 * Whether the database rejects the values: because of a constraint, the range of a column, the RAISE of a trigger, the check option
 * of a view, or a row security policy.
 */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && hasCause(error, 'rule')
}

/** Returns PostgreSQL's message with its details, such as the row that violates a constraint. */
export function messageWithDetail({ message, detail }: pg.DatabaseError): string {
  return detail === undefined ? message : `${message} (${detail.replace(/\.$/, '')})`
}
