import pg from 'pg'
import { DatabaseUnavailableError, originalError } from './outcomes.ts'

/** Why the service is not ready, by the label of the metric; safe to show to anyone. `{said}` is PostgreSQL's message. */
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
   * What is to blame: the `values` of a statement, which a constraint or a trigger rejects; the `statement`, which this database does
   * not support; the `moment`, so that the same statement may succeed; or the `server` or the connection. Only `values` do not make
   * the database unavailable.
   */
  readonly blame: 'values' | 'statement' | 'moment' | 'server'
  /** SQLSTATEs (PostgreSQL manual, appendix A), as PostgreSQL translates the severity. Any other one rejects the statement. */
  readonly code?: RegExp
  /** The function of PostgreSQL that reports it with a SQLSTATE of another meaning. */
  readonly routine?: string
  /** Messages of pg and pg-pool, and codes of the system and OpenSSL. */
  readonly text?: RegExp
  /** The cause of a 503 in the log and the metrics, unless `unavailableCauseOf` has a general one. */
  readonly logged?: 'late' | 'locked' | 'read_only'
  /** Why the service is not ready, unless it is that the database cannot be reached. */
  readonly notReady?: NotReadyKind
}

/** What can happen, and what follows from it. Whether something was changed does not: the protocol says that. */
const meanings = {
  /** For example by `statement_timeout`. */
  canceled: { blame: 'moment', code: /^57014/, logged: 'late' },
  /** Serialization failures and deadlocks. */
  conflict: { blame: 'moment', code: /^40(001|P01)/ },
  /** The server, or another one that it uses, cannot do it: its disk is full, its data are damaged, a commit may be lost. */
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
  /** An open connection was lost, as in a shutdown, a crash or a reset: a read may succeed on another one. */
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
   * text and COPY; Citus uses one for statements that it does not support.
   */
  rule: { blame: 'values', code: /^(22(?!P)|23|44000|P0001)/, routine: 'ExecWithCheckOptions' },
  /** What PgBouncer and RDS Proxy say about settings in the startup message. */
  settings: { blame: 'server', text: /^unsupported startup parameter|support command-line options/ },
  /** A statement of ours left a transaction open, or ended one. */
  transactions: { blame: 'server' },
  unknownColumn: { blame: 'statement', code: /^42703/, notReady: 'unsupported' },
  unknownTable: { blame: 'statement', code: /^42P01/, notReady: 'schema_behind' },
  /** By Citus or a server that is merely compatible: a feature, the syntax, a type, a function. */
  unsupported: { blame: 'statement', code: /^(0A000|42601|42704|42883)/, notReady: 'unsupported' },
  untrusted: {
    blame: 'server',
    text: /^(The server does not support SSL|EPROTO|ERR_(OS)?SSL_|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/,
  },
} as const satisfies Record<string, Meaning>

/** What has happened. `process/explain.ts` says what operators do about it. */
export type Cause = keyof typeof meanings

const causes = Object.keys(meanings).filter((name): name is Cause => name in meanings)

/** Returns the cause whose meaning fulfills a condition. */
function findCause(isIt: (meaning: Meaning) => boolean | undefined): Cause | undefined {
  return causes.find((name) => isIt(meanings[name]))
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
    const cause = reportedCauseOf(original, isInFunction(original) && outcome !== 'unknown')
    // A login has no statement that could be wrong: PostgreSQL has rejected one of its parameters.
    return outcome === 'notSent' && (cause === undefined || cause === 'rule') ? 'login' : cause
  }
  // pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call.
  if (!(original instanceof Error) || /^(Type|Range|Syntax)Error$/.test(original.name)) return undefined
  const texts = [original.message, 'code' in original ? String(original.code) : '']
  return findCause(({ text }) => text && texts.some((said) => text.test(said))) ?? 'other'
}

/** Returns the cause of an error that the server, or a pooler in its place, reports. */
function reportedCauseOf(error: pg.DatabaseError, isOfFunction: boolean): Cause | undefined {
  const { code = '', routine = 'none', message } = error
  if (!isOfFunction && meanings.settings.text.test(message)) return 'settings'
  const cause =
    findCause((meaning) => meaning.routine === routine) ?? findCause((meaning) => meaning.code?.test(code))
  // A trigger may reject values with any SQLSTATE.
  const ofOperator = routine === 'exec_stmt_raise' ? 'rule' : undefined
  if (!isOfFunction) return cause ?? ofOperator
  if (cause === undefined || meanings[cause].blame === 'statement') return ofOperator
  // Its connection to another server must not pass for ours.
  return meanings[cause].blame === 'server' ? 'failed' : cause
}

/** Whether a function or trigger of the operator's own failed: PostgreSQL adds a context; Citus, to errors of another server. */
export function isInFunction(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && error.where !== undefined && !isOfWorker(error)
}

/** Whether Citus passes on an error of another server. */
function isOfWorker({ where = '' }: pg.DatabaseError): boolean {
  return /^while executing command on /m.test(where)
}

/** Whether a statement has waited for a lock until `lock_timeout`. A trigger with NOWAIT has the same SQLSTATE, but has not waited. */
export function isLockTimeout(error: unknown): boolean {
  const original = originalError(error)
  if (!(original instanceof pg.DatabaseError) || !hasCause(error, 'locked')) return false
  return original.routine === 'ProcessInterrupts' || isOfWorker(original)
}

/**
 * Whether nobody expects an ERROR of this kind: neither the values nor the moment nor the server is to blame, but perhaps what the session
 * remembers, such as the plan of a function, a setting of an extension, or the type of a column.
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

/** Whether PostgreSQL responded with an ERROR and rolled back, so that nothing has changed. */
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

/** Whether the database rejects the values. */
export function isRuleViolation(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && hasCause(error, 'rule')
}

/** Returns PostgreSQL's message with its details, such as the row that violates a constraint. */
export function messageWithDetail({ message, detail }: pg.DatabaseError): string {
  return detail === undefined ? message : `${message} (${detail.replace(/\.$/, '')})`
}
