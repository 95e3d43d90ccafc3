import pg from 'pg'

/** What is known about a statement that failed: it was not sent, PostgreSQL has rolled it back and was ready again, or neither. */
export type Outcome = 'notSent' | 'rolledBack' | 'unknown'

/**
 * What is to blame: the `values`, which a constraint or a trigger rejects; the `moment`, so that the same statement may succeed; the
 * `statement`, which this session cannot run; or the `server` or the connection.
 */
export type Blame = 'values' | 'moment' | 'statement' | 'server'

/** Why the service is not ready, by the label of the metric; safe to show to anyone. `{message}` is PostgreSQL's message. */
export const notReadyReasons = {
  unreachable: 'The database cannot be reached.',
  read_only: 'The database is read-only: a standby, or default_transaction_read_only is on.',
  former_primary: 'The address leads to a former primary, which may lack acknowledged updates.',
  schema_behind: 'The database lacks a table: {message}.',
  table: 'The table {message}.',
  privileges:
    'The database role lacks a privilege: {message}. Run "inventory migrate up --server-role ROLE".',
  row_security: 'Row security would hide rows: {message}. Disable it, or give the role BYPASSRLS.',
  unsupported: 'The database does not support a statement that this service needs: {message}.',
} as const

export type NotReadyKind = keyof typeof notReadyReasons

/** How a cause is known, and what follows from it. */
interface Cause {
  readonly blame: Blame
  /**
   * The SQLSTATE (PostgreSQL manual, appendix A) and the function of PostgreSQL that reports it, or `worker` if Citus passes it on from
   * another server. Not the message or the severity, which PostgreSQL translates.
   */
  readonly code?: RegExp
  /** Messages of pg and pg-pool, and codes of the system and OpenSSL. */
  readonly text?: RegExp
  /** The cause of a 503 in the log and the metrics, unless the outcome says enough; `null` if it is no reason for a 503. */
  readonly logged?: 'late' | 'locked' | 'read_only' | null
  /** Why the service is not ready, unless it is that the database cannot be reached. */
  readonly notReady?: NotReadyKind
}

/** Everything that can happen to a statement, and what follows from it. The first row that matches an error is its cause. */
const causes = {
  canceled: { blame: 'moment', code: /^57014/, logged: 'late' },
  /** Serialization failures and deadlocks. */
  conflict: { blame: 'moment', code: /^40(001|P01)/ },
  /**
   * The server, or another one that it uses, cannot do it: its disk or its queue of notifications is full, its data are damaged, a commit
   * may be lost.
   */
  failed: { blame: 'server', code: /^(53(?!300)|54000|57(?!014|P)|58|XX)/ },
  hidden: { blame: 'statement', code: /^42501 check_enable_rls/, notReady: 'row_security' },
  formerPrimary: { blame: 'server', logged: 'read_only', notReady: 'former_primary' },
  late: {
    blame: 'server',
    code: /^25P0[34]/,
    text: /^(Query read timeout|timeout exceeded when trying to connect)$/,
    logged: 'late',
  },
  /** The statement has waited for a lock until `lock_timeout`. */
  lockTimeout: { blame: 'moment', code: /^55P03 (ProcessInterrupts|worker)/, logged: 'locked' },
  /** Of NOWAIT, as in a trigger. */
  locked: { blame: 'moment', code: /^55P03/, logged: 'locked' },
  /** An open connection was lost, as in a shutdown, a crash or a reset: a read may succeed on another one. */
  lost: {
    blame: 'server',
    code: /^(08|40003|57P)/,
    text: /^(Connection terminated( unexpectedly)?|Client .* not queryable|(read|write) (ECONNRESET|EPIPE))$/,
  },
  /** This session has prepared the statement when a column had another type. */
  outdated: { blame: 'statement', code: /^0A000 RevalidateCachedQuery/ },
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
  rule: { blame: 'values', code: /^(22(?!P)|23|44000|P0001|42501 ExecWithCheckOptions)/, logged: null },
  forbidden: { blame: 'statement', code: /^42501/, notReady: 'privileges' },
  /** What PgBouncer and RDS Proxy say about settings in the startup message. */
  settings: { blame: 'server', text: /^unsupported startup parameter|support command-line options/ },
  /** A statement left a transaction open, or ended one. */
  transactions: { blame: 'server' },
  unknownColumn: { blame: 'statement', code: /^42703/, notReady: 'unsupported' },
  unknownTable: { blame: 'statement', code: /^42P01/, notReady: 'schema_behind' },
  /** By Citus or a server that is merely compatible: a feature, the syntax, a type, a function. */
  unsupported: { blame: 'statement', code: /^(0A000|42601|42704|42883)/, notReady: 'unsupported' },
  untrusted: {
    blame: 'server',
    text: /^(The server does not support SSL|EPROTO|ERR_(OS)?SSL_|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/,
  },
  /** An ERROR that nobody expects: the program is wrong, or a function of the operator's own, or what the session remembers. */
  unexpected: { blame: 'statement', logged: null },
  /** Any other failure of a connection. */
  other: { blame: 'server' },
} as const satisfies Record<string, Cause>

/** Why a statement failed: the name of a cause. `process/explain.ts` says what operators do about it. */
export type Reason = keyof typeof causes

const reasons = Object.keys(causes).filter((name): name is Reason => name in causes)

/** Returns what follows from a reason. */
export function findCause(reason: Reason): Cause {
  return causes[reason]
}

/** Returns the first reason whose cause fulfills a condition. */
function findReason(isMet: (cause: Cause) => boolean | undefined): Reason | undefined {
  return reasons.find((name) => isMet(causes[name]))
}

/** Returns why a statement, or the login before it, failed with an error. */
export function classify(error: unknown, outcome: Outcome): Reason {
  if (!(error instanceof pg.DatabaseError)) {
    const texts = error instanceof Error ? [error.message, 'code' in error ? String(error.code) : ''] : []
    return findReason(({ text }) => text && texts.some((known) => text.test(known))) ?? 'other'
  }
  // An error that ends the connection is no error of the function in which it was reported.
  const reason = classifyReport(error, isInFunction(error) && outcome !== 'unknown')
  const isStatement = causes[reason].blame === 'values' || causes[reason].blame === 'statement'
  // A login has no statement that could be wrong: PostgreSQL has rejected one of its parameters.
  if (outcome === 'notSent') return reason === 'rule' || reason === 'unexpected' ? 'login' : reason
  return outcome === 'unknown' && isStatement ? 'lost' : reason
}

/** Returns the reason for an error that the server, or a pooler in its place, reports. */
function classifyReport(error: pg.DatabaseError, isOfFunction: boolean): Reason {
  const { code, routine, message } = error
  if (!isOfFunction && causes.settings.text.test(message)) return 'settings'
  const report = `${code} ${isOfWorker(error) ? 'worker' : routine}`
  const reason = findReason((cause) => cause.code?.test(report)) ?? 'unexpected'
  // A trigger may reject values with any SQLSTATE.
  const isRaised = routine === 'exec_stmt_raise'
  if (!isOfFunction) return reason === 'unexpected' && isRaised ? 'rule' : reason
  if (causes[reason].blame === 'statement') return isRaised ? 'rule' : 'unexpected'
  // Its connection to another server must not pass for ours.
  return causes[reason].blame === 'server' ? 'failed' : reason
}

/** Whether a function or trigger of the operator's own failed: PostgreSQL adds a context; Citus, to errors of another server. */
export function isInFunction(error: pg.DatabaseError): boolean {
  return error.where !== undefined && !isOfWorker(error)
}

/** Whether Citus passes on an error of another server. */
function isOfWorker({ where = '' }: pg.DatabaseError): boolean {
  return /^while executing command on /m.test(where)
}

/**
 * Whether another server may have committed a statement, though the server that reports this ERROR has not: Citus passes a statement on
 * to the server with its rows, which commits it.
 */
export function mayBeCommittedElsewhere(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError) || isInFunction(error)) return false
  const reason = classify(error, 'rolledBack')
  return error.code?.startsWith('08') === true || (isOfWorker(error) && ['failed', 'lost'].includes(reason))
}
