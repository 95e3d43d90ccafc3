import type { Database } from './database.ts'
import { hasCause, isFormerPrimary, isReadOnly } from './error-meaning.ts'
import { causeOf, DatabaseUnavailableError } from './errors.ts'
import { pendingMigrations } from './migrations/applied.ts'
import { hasPrivileges, type Privilege } from './migrations/privileges.ts'
import { isServerReadOnly } from './server-status.ts'

/** The reasons why the service is not ready, as values of a metric's label. */
export const notReadyKinds = [
  'unreachable',
  'read_only',
  'former_primary',
  'schema_behind',
  'privileges',
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

const FORBIDDEN =
  'The database role lacks privileges. Run "inventory migrate up --server-role ROLE" as the owner of the tables.'

const READ_ONLY =
  'The database is read-only: the address leads to a standby, or default_transaction_read_only is on.'

const FORMER_PRIMARY =
  'The address leads to a former primary, which may lack acknowledged updates. See the log for details.'

const UNCHECKED = 'The database cannot be checked. See the log for details.'

/**
 * Returns why the database cannot serve this version now; undefined if it can. Never rejects: an error of a check is a reason.
 *
 * @param migrations names of the migrations that this version needs
 * @param privileges the privileges that requests need
 * @param statements the texts of the statements of requests
 */
export async function reasonNotReady(
  database: Database,
  migrations: readonly string[],
  privileges: readonly Privilege[],
  statements: readonly string[],
): Promise<NotReady | undefined> {
  try {
    if (await isServerReadOnly(database)) throw database.refuseServer()
    const pending = await pendingMigrations(database, migrations)
    if (pending.length > 0) {
      const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables.`
      return { kind: 'schema_behind', reason }
    }
    if (!(await hasPrivileges(database, privileges))) return { kind: 'privileges', reason: FORBIDDEN }
    return await unsupported(database, statements)
  } catch (error) {
    // For example a damaged table, or an error in the check.
    if (!(error instanceof DatabaseUnavailableError))
      return { kind: 'unreachable', reason: UNCHECKED, cause: error }
    error.countFailure()
    const { cause } = error
    if (hasCause(error, 'forbidden')) return { kind: 'privileges', reason: FORBIDDEN, cause }
    if (isReadOnly(error)) return { kind: 'read_only', reason: READ_ONLY, cause }
    if (isFormerPrimary(error)) return { kind: 'former_primary', reason: FORMER_PRIMARY, cause }
    if (hasCause(error, 'unsupported')) return unsupportedBy(cause)
    return { kind: 'unreachable', reason: 'The database cannot be reached.', cause }
  }
}

/** Names, in PostgreSQL's words, what a statement needs and the server does not know. */
function unsupportedBy(cause: unknown): NotReady {
  const said = cause instanceof Error ? `: ${cause.message}` : ''
  return {
    kind: 'unsupported',
    reason: `The database does not support a statement that this service needs${said}.`,
    cause,
  }
}

/** The pools whose server knows every statement, each with its generation at the time of the check. */
const checkedGenerations = new WeakMap<Database, number>()

/**
 * Has the server parse the statements of the service until it knows all of them, and again after a failover: the version number of
 * a server that is merely compatible with PostgreSQL does not say what it supports.
 */
async function unsupported(database: Database, statements: readonly string[]): Promise<NotReady | undefined> {
  const generation = database.generation()
  if (checkedGenerations.get(database) === generation) return undefined
  for (const text of statements) {
    try {
      await database.query(`PREPARE inventory_readiness AS ${text}; DEALLOCATE inventory_readiness`)
    } catch (error) {
      if (hasCause(error, 'unsupported') || hasCause(error, 'unknownColumn'))
        return unsupportedBy(causeOf(error))
      if (error instanceof DatabaseUnavailableError) throw error
      // Any other error shows that the server knows the statement, for example if `inventory` is a materialized view.
    }
  }
  checkedGenerations.set(database, generation)
  return undefined
}
