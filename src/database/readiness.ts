import type { Database } from './database.ts'
import { hasCause, isUnavailable } from './error-meaning.ts'
import { causeOf } from './errors.ts'
import { migrationRecords, namesOf } from './migrations.ts'
import { HAS_CITUS, rowSecurityOf } from './server-status.ts'

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

/** What the service needs of the database. */
export interface Needs {
  /** Names of the migrations. */
  readonly migrations: readonly string[]
  /** The tables whose rows must all be visible. */
  readonly tables: readonly string[]
  /** The texts of the statements of requests. */
  readonly statements: readonly string[]
}

/** Returns why the database cannot serve this version now; undefined if it can. Never rejects: an error of a check is a reason. */
export async function reasonNotReady(database: Database, needs: Needs): Promise<NotReady | undefined> {
  try {
    const pending = namesOf(await migrationRecords(database, needs.migrations), 'pending')
    if (pending.length > 0) {
      const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables, with --server-role ROLE for another role.`
      return { kind: 'schema_behind', reason }
    }
    const hidden = (await rowSecurityOf(database, needs.tables)).map(({ table }) => table)
    if (hidden.length > 0) {
      const reason = `Row security applies to ${hidden.join(' and ')}, so rows may be hidden. "inventory status" says what to do.`
      return { kind: 'row_security', reason }
    }
    await explainAll(database, needs.statements)
    return undefined
  } catch (error) {
    const cause = causeOf(error)
    const [kind, reason] = notReadyBecause(cause)
    return { kind, reason, cause }
  }
}

function notReadyBecause(cause: unknown): readonly [NotReadyKind, reason: string] {
  // What a statement needs and the server does not know, in PostgreSQL's words.
  const said = cause instanceof Error ? `: ${cause.message}` : ''
  if (hasCause(cause, 'unknownTable')) return ['schema_behind', `The database lacks a table${said}.`]
  if (hasCause(cause, 'unsupported', 'unknownColumn'))
    return ['unsupported', `The database does not support a statement that this service needs${said}.`]
  if (hasCause(cause, 'forbidden'))
    return [
      'privileges',
      'The database role lacks privileges. Run "inventory migrate up --server-role ROLE".',
    ]
  if (hasCause(cause, 'readOnly'))
    return ['read_only', 'The database is read-only: a standby, or default_transaction_read_only is on.']
  if (hasCause(cause, 'formerPrimary'))
    return ['former_primary', 'The address leads to a former primary, which may lack acknowledged updates.']
  return ['unreachable', 'The database cannot be reached.']
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
      if (hasCause(error, 'unsupported') && (await database.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0)
        continue
      // Any other error shows that the server knows the statement, for example if `inventory` is a materialized view.
      if (isUnavailable(causeOf(error))) throw error
    }
  }
}

/** Otherwise, Citus plans a statement also on the servers with the rows, of which one may be down. Other servers ignore it. */
const WITHOUT_WORKERS = 'SET LOCAL citus.explain_distributed_queries = off'
