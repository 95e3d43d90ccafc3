import { DatabaseUnavailableError, isForbidden, isFormerPrimary, isReadOnly } from './failures.ts'
import { pendingMigrations } from './migration-history.ts'
import type { Database } from './pool.ts'
import { mayServe } from './privileges.ts'
import { isServerReadOnly } from './server-status.ts'

/** The closed set of reasons by which the metrics tell why requests cannot be served. */
export const notReadyKinds = [
  'unreachable',
  'read_only',
  'former_primary',
  'schema_behind',
  'privileges',
] as const

export type NotReadyKind = (typeof notReadyKinds)[number]

/** Why requests cannot be served now. */
export interface NotReady {
  /** For programs. */
  readonly kind: NotReadyKind
  /** In words that anyone may read. */
  readonly reason: string
  /** What happened, for the log alone. */
  readonly cause?: unknown
}

const FORBIDDEN =
  'The database role lacks privileges. Run "inventory migrate up --server-role ROLE" as the owner of the tables.'

const READ_ONLY =
  'The database is read-only: the address leads to a standby, or default_transaction_read_only is on.'

const FORMER_PRIMARY =
  'The address leads to a former primary, which may lack updates that were acknowledged since. The log says more.'

/**
 * Why the database cannot serve this version now; undefined when it can. `migrations` are the names of those that this
 * version needs.
 */
export async function reasonNotReady(
  database: Database,
  migrations: readonly string[],
): Promise<NotReady | undefined> {
  try {
    if (await isServerReadOnly(database)) throw database.refuseServer()
    const pending = await pendingMigrations(database, migrations)
    if (pending.length === 0)
      return (await mayServe(database)) ? undefined : { kind: 'privileges', reason: FORBIDDEN }
    const reason = `The database schema is behind; to be applied: ${pending.join(', ')}. Run "inventory migrate up".`
    return { kind: 'schema_behind', reason }
  } catch (error) {
    if (error instanceof DatabaseUnavailableError) {
      error.countLoss()
      if (isForbidden(error.cause)) return { kind: 'privileges', reason: FORBIDDEN, cause: error.cause }
      if (isReadOnly(error)) return { kind: 'read_only', reason: READ_ONLY, cause: error.cause }
      if (isFormerPrimary(error)) {
        return { kind: 'former_primary', reason: FORMER_PRIMARY, cause: error.cause }
      }
      return { kind: 'unreachable', reason: 'The database cannot be reached.', cause: error.cause }
    }
    throw error
  }
}
