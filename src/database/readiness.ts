import type { Database } from './database.ts'
import { hasCause, isFormerPrimary, isReadOnly, isRemoteRefusal } from './error-meaning.ts'
import { DatabaseUnavailableError } from './errors.ts'
import { pendingMigrations } from './migrations.ts'
import { hasCitus, isServerReadOnly, rowSecurityOf } from './server-status.ts'

/** The reasons why the service is not ready, as values of a metric's label. */
export const notReadyKinds = [
  'unreachable',
  'read_only',
  'former_primary',
  'schema_behind',
  'privileges',
  'row_security',
  'unsupported',
] as const

export type NotReadyKind = (typeof notReadyKinds)[number]

/** Why requests cannot be served now. */
export interface NotReady {
  /** For programs. */
  readonly kind: NotReadyKind
  /** A message that is safe to show to anyone. */
  readonly reason: string
  /** The error, for logs only. */
  readonly cause?: unknown
}

const reasons = {
  privileges:
    'The database role lacks privileges. Run "inventory migrate up --server-role ROLE" as the owner of the tables.',
  read_only:
    'The database is read-only: the address leads to a standby, or default_transaction_read_only is on.',
  former_primary:
    'The address leads to a former primary, which may lack acknowledged updates. See the log for details.',
  unreachable: 'The database cannot be reached.',
} as const

/** What the service needs of the database. */
export interface Needs {
  /** Names of the migrations. */
  readonly migrations: readonly string[]
  /** The tables whose rows must all be visible. */
  readonly tables: readonly string[]
  /** The texts of the statements of requests. */
  readonly statements: readonly string[]
}

/**
 * Returns why the database cannot serve this version now; undefined if it can. Never rejects: an error of a check is a reason.
 */
export async function reasonNotReady(database: Database, needs: Needs): Promise<NotReady | undefined> {
  try {
    if (await isServerReadOnly(database)) throw database.refuseServer()
    const pending = await pendingMigrations(database, needs.migrations)
    if (pending.length > 0) {
      const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables.`
      return { kind: 'schema_behind', reason }
    }
    const hidden = await rowSecurityOf(database, needs.tables)
    if (hidden.length > 0) {
      const tables = hidden.map(({ table }) => table)
      const reason = `Row security applies to ${tables.join(' and ')}, so rows may be hidden. "inventory status" says what to do.`
      return { kind: 'row_security', reason }
    }
    await explainAll(database, needs.statements)
    return undefined
  } catch (error) {
    return notReadyBecause(error)
  }
}

function notReadyBecause(error: unknown): NotReady {
  // For example a damaged table, or an error in the check.
  if (!(error instanceof DatabaseUnavailableError))
    return {
      kind: 'unreachable',
      reason: 'The database cannot be checked. See the log for details.',
      cause: error,
    }
  error.countFailure()
  const { cause } = error
  // What a statement needs and the server does not know, in PostgreSQL's words.
  const said = cause instanceof Error ? `: ${cause.message}` : ''
  if (hasCause(error, 'unknownTable'))
    return { kind: 'schema_behind', reason: `The database lacks a table${said}.`, cause }
  if (hasCause(error, 'unsupported') || hasCause(error, 'unknownColumn')) {
    const reason = `The database does not support a statement that this service needs${said}.`
    return { kind: 'unsupported', reason, cause }
  }
  const kind = knownKindOf(error)
  return { kind, reason: reasons[kind], cause }
}

function knownKindOf(error: unknown): keyof typeof reasons {
  if (hasCause(error, 'forbidden')) return 'privileges'
  if (isReadOnly(error)) return 'read_only'
  return isFormerPrimary(error) ? 'former_primary' : 'unreachable'
}

/**
 * Has the server plan each statement, which needs everything that running it needs: its tables, columns, functions, syntax and
 * privileges. The version number of a server that is merely compatible with PostgreSQL does not say what it supports.
 */
async function explainAll(database: Database, statements: readonly string[]): Promise<void> {
  for (const text of statements) {
    try {
      await database.query(`${WITHOUT_WORKERS}; EXPLAIN ${text.replace(/\$\d+/g, 'NULL')}`)
    } catch (error) {
      // Requests wait for the lock, too, but longer than this check: CREATE INDEX does not block lists.
      if (hasCause(error, 'locked')) return
      if (hasCause(error, 'unsupported') && (await hasCitus(database))) continue
      // Any other error shows that the server knows the statement, for example if `inventory` is a materialized view.
      if (error instanceof DatabaseUnavailableError && !isRemoteRefusal(error)) throw error
    }
  }
}

/** Otherwise, Citus plans a statement also on the servers with the rows, of which one may be down. Other servers ignore it. */
const WITHOUT_WORKERS = 'SET LOCAL citus.explain_distributed_queries = off'
