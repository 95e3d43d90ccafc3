import pg from 'pg'
import { DatabaseUnavailableError, OutcomeUnknownError, originalError } from './outcomes.ts'

/**
 * The reasons why the service is not ready, by the value of a metric's label, as messages that are safe to show to anyone. `{said}` is
 * what PostgreSQL says about a statement.
 */
export const notReadyReasons = {
  unreachable: 'The database cannot be reached.',
  read_only: 'The database is read-only: a standby, or default_transaction_read_only is on.',
  former_primary: 'The address leads to a former primary, which may lack acknowledged updates.',
  schema_behind: 'The database lacks a table: {said}.',
  privileges: 'The database role lacks a privilege: {said}. Run "inventory migrate up --server-role ROLE".',
  row_security: 'Row security would hide rows: {said}. Disable it, or give the role BYPASSRLS.',
  unsupported: 'The database does not support a statement that this service needs: {said}.',
} as const

export type NotReadyKind = keyof typeof notReadyReasons

/** How a cause is known, and what follows from it. */
interface Meaning {
  /**
   * What is to blame: the `values` of a statement, which a constraint or a trigger rejects; the `statement`, which is not possible in
   * this database, as readiness finds out; the `moment`, so that the same statement may succeed; or the `server` or the connection.
   * Only `values` do not make the database unavailable.
   */
  readonly blame: 'values' | 'statement' | 'moment' | 'server'
  /**
   * SQLSTATEs (PostgreSQL manual, appendix A). Any other one rejects the statement, which would fail again. The severity tells nothing,
   * because PostgreSQL translates it.
   */
  readonly code?: RegExp
  /** The function of PostgreSQL that reports it with a SQLSTATE of another meaning. */
  readonly routine?: string
  /** Messages of pg and pg-pool, and codes of the system and of OpenSSL. */
  readonly text?: RegExp
  /** The cause of a 503 in the log and the metrics, unless it is that the database cannot be reached, or has failed. */
  readonly logged?: 'late' | 'locked' | 'read_only'
  /** Why the service is not ready, unless it is that the database cannot be reached. */
  readonly notReady?: NotReadyKind
}

/** What can happen, and what follows from it. Whether something was changed does not: only the protocol says that. */
const meanings = {
  /** For example by `statement_timeout`. */
  canceled: { blame: 'moment', code: /^57014/, logged: 'late' },
  /** Serialization failures and deadlocks. */
  conflict: { blame: 'moment', code: /^40(001|P01)/ },
  /** The server, or another one that it uses, has failed to do it: its disk is full, its data are damaged. */
  failed: { blame: 'server', code: /^(53(?!300)|57(?!014|P)|58|XX)/ },
  forbidden: { blame: 'statement', code: /^42501/, notReady: 'privileges' },
  formerPrimary: { blame: 'server', logged: 'read_only', notReady: 'former_primary' },
  hidden: { blame: 'statement', routine: 'check_enable_rls', notReady: 'row_security' },
  late: {
    blame: 'server',
    code: /^25P0[34]/,
    text: /^(Query read timeout|timeout exceeded when trying to connect)$/,
    logged: 'late',
  },
  locked: { blame: 'moment', code: /^55P03/, logged: 'locked' },
  /**
   * Connection exceptions, a shutdown, a crash, a reset: a read may succeed on another connection. One that cannot be opened, or that
   * has not responded in time, is not lost.
   */
  lost: {
    blame: 'server',
    code: /^(08|40003|57P)/,
    text: /^(Connection terminated( unexpectedly)?|Client .* not queryable|(read|write) (ECONNRESET|EPIPE))$/,
  },
  other: { blame: 'server' },
  outOfConnections: { blame: 'server', code: /^53300/ },
  readOnly: { blame: 'server', code: /^25006/, logged: 'read_only', notReady: 'read_only' },
  /** The role, its password or the database is wrong. */
  login: {
    blame: 'statement',
    code: /^(28|3D000)/,
    text: /^(SASL: |Unknown authenticationOk message type )/,
  },
  /**
   * Constraints, RAISE, the check option of a view, a policy, and what an expression of the operator's own cannot compute. 22P is about
   * text and COPY, not about a quantity; Citus uses one for statements that it does not support.
   */
  rule: { blame: 'values', code: /^(22(?!P)|23|44000|P0001)/, routine: 'ExecWithCheckOptions' },
  /** What poolers such as PgBouncer and RDS Proxy say about the settings that a session requests in its startup message. */
  settings: { blame: 'server', text: /^unsupported startup parameter|support command-line options/ },
  /** A statement of ours left a transaction open, or ended one. */
  transactions: { blame: 'server' },
  /** PostgreSQL has committed and warned, so that the change may be lost. */
  uncertain: { blame: 'server' },
  unknownColumn: { blame: 'statement', code: /^42703/, notReady: 'unsupported' },
  unknownTable: { blame: 'statement', code: /^42P01/, notReady: 'schema_behind' },
  /** By Citus or a server that is only compatible with PostgreSQL: a feature, the syntax, a type, a function. */
  unsupported: { blame: 'statement', code: /^(0A000|42601|42704|42883)/, notReady: 'unsupported' },
  untrusted: {
    blame: 'server',
    text: /^(The server does not support SSL|EPROTO|ERR_(OS)?SSL_|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/,
  },
} as const satisfies Record<string, Meaning>

/** What has happened. `explanations` in `process/explain.ts` says what operators do about it. */
export type Cause = keyof typeof meanings

/** Returns the cause whose meaning fulfills a condition. */
function findCause(isIt: (meaning: Meaning) => boolean | undefined): Cause | undefined {
  const isCause = (name: string): name is Cause => name in meanings
  return Object.keys(meanings).find((name): name is Cause => isCause(name) && isIt(meanings[name]) === true)
}

/** What this process finds out itself about a connection. */
export class ConnectionFault extends Error {
  override readonly name = 'ConnectionFault'
  readonly kind: Cause

  constructor(kind: Cause, message: string) {
    super(message)
    this.kind = kind
  }
}

/** Returns the cause of an error; undefined if the statement, the caller or the program is wrong. */
export function causeOf(error: unknown): Cause | undefined {
  const original = originalError(error)
  if (original instanceof ConnectionFault) return original.kind
  if (original instanceof pg.DatabaseError) {
    const outcome = error instanceof DatabaseUnavailableError ? error.outcome : undefined
    // An error that ends the connection is no error of the function in which it was reported.
    const hasEnded = error instanceof OutcomeUnknownError || outcome === 'unknown'
    const cause = reportedCauseOf(original, isInFunction(original) && !hasEnded)
    // A login has no statement that could be wrong: PostgreSQL has rejected one of its parameters.
    return outcome === 'notSent' && (cause === undefined || cause === 'rule') ? 'login' : cause
  }
  // pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call.
  if (!(original instanceof Error) || /^(Type|Range|Syntax)Error$/.test(original.name)) return undefined
  const texts = [original.message, 'code' in original ? String(original.code) : '']
  return findCause(({ text }) => text && texts.some((said) => text.test(said))) ?? 'other'
}

/** Returns the cause of an error that the server, or a pooler in its place, has reported. */
function reportedCauseOf(error: pg.DatabaseError, isOfFunction: boolean): Cause | undefined {
  const { code = '', routine = 'none', message } = error
  if (!isOfFunction && meanings.settings.text.test(message)) return 'settings'
  const cause =
    findCause((meaning) => meaning.routine === routine) ?? findCause((meaning) => meaning.code?.test(code))
  // A trigger may reject values with any SQLSTATE.
  const ofOperator = routine === 'exec_stmt_raise' ? 'rule' : undefined
  if (!isOfFunction) return cause ?? ofOperator
  if (cause === undefined || meanings[cause].blame === 'statement') return ofOperator
  // Otherwise, its connection to another server would pass for ours, and that server's state for that of this one.
  return meanings[cause].blame === 'server' ? 'failed' : cause
}

/**
 * Whether a function or trigger of the operator's own failed, for example because its table is missing. PostgreSQL adds a context
 * to errors inside of functions; Citus, to those of another server.
 */
export function isInFunction(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && error.where !== undefined && !isOfWorker(error)
}

/** Whether the error is one of another server, which Citus passes on. */
function isOfWorker({ where = '' }: pg.DatabaseError): boolean {
  return /^while executing command on /m.test(where)
}

/**
 * Whether a statement has waited for a lock until `lock_timeout`, so that it may succeed later. A trigger with NOWAIT, or one that
 * raises the same SQLSTATE, has not waited.
 */
export function isLockTimeout(error: unknown): boolean {
  const original = originalError(error)
  if (!(original instanceof pg.DatabaseError) || !hasCause(error, 'locked')) return false
  return original.routine === 'ProcessInterrupts' || isOfWorker(original)
}

/**
 * Whether nobody expects an ERROR of this kind: neither the values nor the moment nor the server is to blame. A session may remember what
 * has changed since: the plan of a function, a setting of an extension, the type of a column of a prepared statement.
 */
export function isUnexpected(error: unknown): boolean {
  return (meaningOf(error)?.blame ?? 'statement') === 'statement'
}

/** Returns what follows from an error; undefined if the statement, the caller or the program is wrong. */
export function meaningOf(error: unknown): Meaning | undefined {
  const cause = causeOf(error)
  return cause && meanings[cause]
}

/** Whether an error has one of these causes, also behind a DatabaseUnavailableError. */
export function hasCause(error: unknown, ...causes: readonly Cause[]): boolean {
  const cause = causeOf(error)
  return causes.some((name) => name === cause)
}

/** Whether the database failed and not the statement, so that the caller should retry later. */
export function isUnavailable(error: unknown): boolean {
  return (meaningOf(error)?.blame ?? 'values') !== 'values'
}

/** Whether PostgreSQL responded with an ERROR and rolled back, so that the statement has certainly changed nothing. */
export function wasRolledBack(error: unknown): boolean {
  // A pool returns an error of PostgreSQL as it is only if the server was ready for the next statement.
  return error instanceof DatabaseUnavailableError
    ? error.outcome === 'rolledBack'
    : error instanceof pg.DatabaseError
}

/** Returns why a request gets a 503, for the log and the metrics. */
export function unavailableCauseOf(error: unknown) {
  return meaningOf(error)?.logged ?? (wasRolledBack(error) ? 'database_error' : 'database_unreachable')
}

/** Whether the database rejects the values, for example because of a constraint or the RAISE of a trigger. */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && hasCause(error, 'rule')
}

/** Returns PostgreSQL's message with its details, such as the row that violates a constraint. */
export function messageWithDetail({ message, detail }: pg.DatabaseError): string {
  return detail === undefined ? message : `${message} (${detail.replace(/\.$/, '')})`
}
