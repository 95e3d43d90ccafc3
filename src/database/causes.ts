import pg from 'pg'
import { DatabaseUnavailableError, OutcomeUnknownError, originalError } from './outcomes.ts'

/** The login or the statement itself is not possible here: a table, a privilege or a feature is missing, as readiness finds out. */
const statementCauses = ['forbidden', 'refused', 'unknownColumn', 'unknownTable', 'unsupported'] as const

/** A statement of the same text may succeed: it met a lock or another transaction, or was canceled. */
const passingCauses = ['canceled', 'conflict', 'locked'] as const

/** What has happened. With any cause but `rule`, the server cannot serve now, and the statement is correct. */
type Cause =
  | (typeof statementCauses)[number]
  | (typeof passingCauses)[number]
  /** The server, or another one that it uses, has failed to do it: its disk is full, its data are damaged. */
  | 'failed'
  | 'formerPrimary'
  | 'late'
  | 'lost'
  | 'other'
  | 'outdated'
  | 'outOfConnections'
  | 'readOnly'
  | 'rule'
  | 'settings'
  /** A statement of its own left a transaction open, or ended one. */
  | 'transactions'
  | 'untrusted'

/** What this process finds out itself about a connection. */
export class ConnectionFault extends Error {
  override readonly name = 'ConnectionFault'
  readonly kind: Cause

  constructor(kind: Cause, message: string) {
    super(message)
    this.kind = kind
  }
}

/**
 * The causes by SQLSTATE, or by its beginning (PostgreSQL manual, appendix A). Any other code rejects the statement, which would
 * fail again. The severity tells nothing, because PostgreSQL translates it.
 */
const reportedCauses: Readonly<Record<string, Cause | undefined>> = {
  '08': 'lost', // connection exceptions
  '0A000': 'unsupported', // by Citus or a server that is only compatible with PostgreSQL
  '22': 'rule', // out of range, divided by zero: a column or an expression of the operator's own
  '22P': undefined, // about text and COPY, not about a quantity; Citus uses one for statements that it does not support
  '23': 'rule', // constraints
  '25006': 'readOnly', // for example after a failover
  '25P03': 'late', // idle_in_transaction_session_timeout
  '25P04': 'late', // transaction_timeout
  '28': 'refused', // invalid authorization
  '3D000': 'refused', // the database does not exist
  '40001': 'conflict', // serialization failure
  '40003': 'lost', // the outcome is unknown
  '40P01': 'conflict', // deadlock
  '42501': 'forbidden',
  '42601': 'unsupported', // syntax error
  '42703': 'unknownColumn',
  '42704': 'unsupported', // undefined object, such as a type
  '42883': 'unsupported', // undefined function
  '42P01': 'unknownTable',
  '44000': 'rule', // the check option of a view
  '53': 'failed', // insufficient resources
  '53300': 'outOfConnections',
  '55P03': 'locked', // lock_timeout
  '57': 'failed', // operator intervention
  '57014': 'canceled', // for example by statement_timeout
  '57P': 'lost', // shutdown or crash
  '58': 'failed', // system errors
  P0001: 'rule', // RAISE
  XX: 'failed', // damage; Citus reports some failures of its workers like that
}

/** The causes of errors without SQLSTATE: those of pg and pg-pool by message, those of the system and OpenSSL by message or code. */
const otherErrors: readonly (readonly [Cause, RegExp])[] = [
  ['late', /^(Query read timeout|timeout exceeded when trying to connect)$/],
  [
    'lost',
    /^(Connection terminated( unexpectedly)?|Client .* not queryable|(read|write) (ECONNRESET|EPIPE))$/,
  ],
  ['refused', /^(SASL: |Unknown authenticationOk message type )/],
  [
    'untrusted',
    /^(The server does not support SSL|EPROTO|ERR_(OS)?SSL_|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/,
  ],
]

/** How poolers such as PgBouncer and RDS Proxy refuse the settings that a session requests in its startup message. */
const POOLER_REFUSAL = /^unsupported startup parameter|support command-line options/

/** Returns the cause of an error; undefined if the statement, the caller or the program is wrong. */
function causeOf(error: unknown): Cause | undefined {
  const cause = originalError(error)
  if (cause instanceof ConnectionFault) return cause.kind
  if (cause instanceof pg.DatabaseError)
    return reportedCauseOf(cause, isInFunction(cause) && !hasEndedConnection(error))
  // pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call.
  if (!(cause instanceof Error) || /^(Type|Range|Syntax)Error$/.test(cause.name)) return undefined
  const texts = [cause.message, 'code' in cause ? String(cause.code) : '']
  return otherErrors.find(([, pattern]) => texts.some((text) => pattern.test(text)))?.[0] ?? 'other'
}

/** Returns the cause of an error that the server, or a pooler in its place, has reported. */
function reportedCauseOf(error: pg.DatabaseError, isOfFunction: boolean): Cause | undefined {
  const { code = '', routine, message } = error
  const known = [code, code.slice(0, 3), code.slice(0, 2)].find((beginning) => beginning in reportedCauses)
  const cause = reportedCauses[known ?? '']
  // A row security policy has the SQLSTATE of a missing privilege.
  if (routine === 'ExecWithCheckOptions') return 'rule'
  // A trigger may reject values with any SQLSTATE.
  const ofOperator = routine === 'exec_stmt_raise' ? 'rule' : undefined
  if (isOfFunction) {
    if (cause === 'rule' || passingCauses.some((name) => name === cause)) return cause
    // Otherwise, its connection to another server would pass for ours, and that server's state for that of this one.
    return cause === undefined || statementCauses.some((name) => name === cause) ? ofOperator : 'failed'
  }
  if (POOLER_REFUSAL.test(message)) return 'settings'
  // The type of a result column has changed since the connection prepared the statement. Nothing has run.
  return routine === 'RevalidateCachedQuery' ? 'outdated' : (cause ?? ofOperator)
}

/** Whether the connection has ended with the error, which then is no error of a function in which it was reported. */
function hasEndedConnection(error: unknown): boolean {
  if (error instanceof OutcomeUnknownError) return hasEndedConnection(error.cause)
  return error instanceof DatabaseUnavailableError && error.outcome === 'unknown'
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
  const name = causeOf(error)
  return causes.some((cause) => cause === name)
}

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  return !hasCause(error, 'rule') && causeOf(error) !== undefined
}

/**
 * Whether the server refuses the connection or cannot be trusted: the role, its password, the database name, a parameter, a certificate
 * or a connection pooler is wrong. Waiting does not help.
 */
export function isRefusal(error: unknown): boolean {
  // A statement that is wrong does not make the database unavailable, so PostgreSQL has rejected a parameter of the login.
  const isOfLogin = error instanceof DatabaseUnavailableError && error.cause instanceof pg.DatabaseError
  return (isOfLogin && !isUnavailable(error)) || hasCause(error, 'refused', 'settings', 'untrusted')
}

/**
 * Returns why the connection of a statement was lost, so that a read may succeed on another one; undefined if it was not lost. A
 * connection that cannot be opened, or that has not responded in time, is not lost.
 */
export function lossOf(error: unknown): string | undefined {
  const cause = originalError(error)
  return cause instanceof Error && hasCause(error, 'lost') ? cause.message : undefined
}

/** Whether PostgreSQL responded that it rejects the statement, so that it has certainly changed nothing. */
export function wasRefused(error: unknown): boolean {
  // A pool returns an error of PostgreSQL as it is only if the server was ready for the next statement.
  return error instanceof DatabaseUnavailableError
    ? error.outcome === 'refused'
    : error instanceof pg.DatabaseError
}

/** Whether PostgreSQL rejected a statement for a reason that may concern only one of the rows to change. */
export function mayConcernOneRow(error: unknown): boolean {
  return wasRefused(error) && !hasCause(error, 'readOnly')
}

/** Whether the database rejects the values, for example because of a constraint or the RAISE of a trigger. */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && hasCause(error, 'rule')
}

/** Returns PostgreSQL's message with its details, such as the row that violates a constraint. */
export function messageWithDetail({ message, detail }: pg.DatabaseError): string {
  return detail === undefined ? message : `${message} (${detail.replace(/\.$/, '')})`
}
