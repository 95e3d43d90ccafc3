import { hasCause, isUnavailable } from '../causes.ts'
import { onlyRow } from '../only-row.ts'
import { originalError } from '../outcomes.ts'
import type { Pool } from '../pool.ts'
import { HAS_CITUS } from '../session-server.ts'
import { missingPrivileges } from './grants.ts'
import { migrationRecords, namesOf } from './migrations.ts'
import { rowSecurityOf } from './server-status.ts'

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
  /** The texts of the statements of requests. Without the optional ones, requests cost more. */
  readonly statements: Readonly<Record<'required' | 'optional', readonly string[]>>
}

/** Returns why the database cannot serve this version now; undefined if it can. Never rejects: an error of a check is a reason. */
export async function reasonNotReady(database: Pool, needs: Needs): Promise<NotReady | undefined> {
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
    const { required, optional } = needs.statements
    await explainAll(database, required)
    await explainAll(database, optional, true)
    return undefined
  } catch (error) {
    const cause = originalError(error)
    const lacking = hasCause(cause, 'forbidden') ? await lackingPrivileges(database) : ''
    const [kind, reason] = notReadyBecause(cause, lacking)
    return { kind, reason, cause }
  }
}

function notReadyBecause(cause: unknown, lacking: string): readonly [NotReadyKind, reason: string] {
  // What a statement needs and the server does not know, in PostgreSQL's words.
  const said = cause instanceof Error ? `: ${cause.message}` : ''
  if (hasCause(cause, 'unknownTable')) return ['schema_behind', `The database lacks a table${said}.`]
  if (hasCause(cause, 'unsupported', 'unknownColumn'))
    return ['unsupported', `The database does not support a statement that this service needs${said}.`]
  if (hasCause(cause, 'forbidden'))
    return [
      'privileges',
      `The database role lacks ${lacking || 'privileges'}. Run "inventory migrate up --server-role ROLE".`,
    ]
  if (hasCause(cause, 'readOnly'))
    return ['read_only', 'The database is read-only: a standby, or default_transaction_read_only is on.']
  if (hasCause(cause, 'formerPrimary'))
    return ['former_primary', 'The address leads to a former primary, which may lack acknowledged updates.']
  if (hasCause(cause, 'transactions')) return ['unreachable', `The database cannot be used${said}.`]
  return ['unreachable', 'The database cannot be reached.']
}

/** Returns which privileges to grant to the role of the session, such as `SELECT on inventory`; nothing if that cannot be found out. */
async function lackingPrivileges(database: Pool): Promise<string> {
  const find = async (): Promise<string> => {
    const { role } = onlyRow(await database.query<{ role: string }>('SELECT current_user::text AS role'))
    return ((await missingPrivileges(database, 'server', role)) ?? []).join(', ')
  }
  return find().catch(() => '')
}

/**
 * Has the server plan each statement, which needs everything that running it needs: its tables, columns, functions, syntax and
 * privileges. The version number of a server that is merely compatible with PostgreSQL does not say what it supports.
 */
async function explainAll(database: Pool, statements: readonly string[], isOptional = false): Promise<void> {
  for (const text of statements) {
    try {
      await database.query(`${WITHOUT_WORKERS}; EXPLAIN ${text.replace(/\$\d+/g, 'NULL')}`)
    } catch (error) {
      // Requests wait for the lock, too, but longer than this check: CREATE INDEX does not block lists.
      if (hasCause(error, 'locked')) return
      if (isOptional && hasCause(error, 'unsupported', 'unknownColumn')) continue
      if (hasCause(error, 'unsupported') && (await database.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0)
        continue
      // Any other error shows that the server knows the statement, for example if `inventory` is a materialized view.
      if (isUnavailable(originalError(error))) throw error
    }
  }
}

/** Otherwise, Citus plans a statement also on the servers with the rows, of which one may be down. Other servers ignore it. */
const WITHOUT_WORKERS = 'SET LOCAL citus.explain_distributed_queries = off'
