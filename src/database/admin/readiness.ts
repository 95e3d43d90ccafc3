import { findCause, type NotReadyKind, notReadyReasons } from '../causes.ts'
import type { Pool } from '../pool.ts'
import { HAS_CITUS } from '../session-server.ts'
import { hasReason, StatementError } from '../statement-error.ts'
import { migrationRecords, namesOf } from './migrations.ts'

/** How long it is cached that the service is ready. */
const MAX_AGE_MS = 1000

export interface NotReady {
  /** For programs. */
  readonly kind: NotReadyKind
  /** Safe to show to anyone. */
  readonly reason: string
  readonly error?: StatementError
}

/** Returns why this process cannot serve requests; undefined if it can. Never rejects. */
export type Readiness = () => Promise<NotReady | undefined>

/** Texts of statements. Without the optional ones, requests cost more. */
export type Statements = Readonly<Record<'required' | 'optional', readonly string[]>>

/**
 * Returns the readiness check of a service. A call shares the check in progress, or that the service was ready in the last second.
 * A reason is not cached, so that several failures for a load balancer are several checks.
 *
 * @param statements those of requests, which the server plans
 */
export function readinessOf(probe: Pool, requests: Pool, statements: Statements): Readiness {
  const checkEither = async (): Promise<NotReady | undefined> => {
    const notReady = await check(probe, statements)
    // The probe opens a connection every few seconds, so it is the first to get none. Requests may still be served on theirs.
    return hasReason(notReady?.error, 'outOfConnections') ? check(requests, statements) : notReady
  }
  let latest: Promise<NotReady | undefined> | undefined
  return () => {
    latest ??= checkEither().then((notReady) => {
      if (notReady === undefined) setTimeout(() => (latest = undefined), MAX_AGE_MS).unref()
      else latest = undefined
      return notReady
    })
    return latest
  }
}

async function check(pool: Pool, { required, optional }: Statements): Promise<NotReady | undefined> {
  try {
    const pending = namesOf(await migrationRecords(pool), 'pending')
    if (pending.length > 0) {
      const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables, with --server-role ROLE for another role.`
      return { kind: 'schema_behind', reason }
    }
    await explainAll(pool, required)
    await explainAll(pool, optional, true)
    return undefined
  } catch (thrown) {
    const error = thrown instanceof StatementError ? thrown : new StatementError(thrown, 'notSent')
    const kind = findCause(error.reason).notReady ?? 'unreachable'
    const reason =
      error.reason === 'transactions' ? 'The database cannot be used: {said}.' : notReadyReasons[kind]
    return { kind, reason: reason.replace('{said}', () => error.message), error }
  }
}

/** Has the server plan each statement, which needs what running it needs: tables, columns, functions, syntax and privileges. */
async function explainAll(pool: Pool, statements: readonly string[], isOptional = false): Promise<void> {
  for (const text of statements) {
    try {
      await pool.query(`${SETTINGS}; EXPLAIN ${text.replace(/\$\d+/g, 'NULL')}`)
    } catch (error) {
      // Requests wait for the lock, too, but longer than this check: CREATE INDEX does not block lists.
      if (hasReason(error, 'locked', 'lockTimeout')) return
      if (isOptional && hasReason(error, 'unsupported', 'unknownColumn')) continue
      if (hasReason(error, 'unsupported') && (await pool.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0)
        continue
      // Any other error shows that the server knows the statement, for example if `inventory` is a materialized view.
      if (!(error instanceof StatementError) || error.unavailable !== undefined) throw error
    }
  }
}

/** PostgreSQL must not plan with a policy that hides rows, also behind a pooler, nor Citus on its workers, of which one may be down. */
const SETTINGS = 'SET LOCAL row_security = off; SET LOCAL citus.explain_distributed_queries = off'
