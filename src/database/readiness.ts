import { findCause, type NotReadyKind, notReadyReasons } from './causes.ts'
import { APPLIED_TABLE, knownMigrations } from './migrations.ts'
import type { Pool } from './pool.ts'
import { HAS_CITUS } from './primary.ts'
import { hasReason, StatementError } from './statement-error.ts'
import { type TableShape, tableFault } from './table-shape.ts'

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

/** What requests need of the database. */
export interface Needs {
  readonly tables: readonly TableShape[]
  /** The texts of all statements, which the server plans. */
  readonly statements: readonly string[]
}

/**
 * Creates the readiness check of a service. A call shares the check in progress, or that the service was ready in the last second.
 * A reason is not cached, so that several failures for a load balancer are several checks.
 */
export function createReadiness(probe: Pool, requests: Pool, needs: Needs): Readiness {
  const checkEither = async (): Promise<NotReady | undefined> => {
    const notReady = await check(probe, needs)
    // The probe opens a connection every few seconds, so it is the first to get none. Requests may still be served on theirs.
    return hasReason(notReady?.error, 'outOfConnections') ? check(requests, needs) : notReady
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

/** PostgreSQL must not plan with a policy that hides rows, also behind a pooler, nor Citus on its workers, of which one may be down. */
const SETTINGS = ['SET LOCAL row_security = off', 'SET LOCAL citus.explain_distributed_queries = off']

/** Planning a statement needs what running it needs: tables, columns, functions, syntax and privileges. */
const plan = (text: string): string => `EXPLAIN ${text.replace(/\$\d+/g, 'NULL')}`

/** Checks everything in one message, and so in one round trip. The rows of the statements before one that fails arrive as well. */
async function check(pool: Pool, { tables, statements }: Needs): Promise<NotReady | undefined> {
  const faults = tables.map((table) => `('${table.name}', ${tableFault(table)})`)
  const found: Record<string, string[]> = { applied: [], fault: [], citus: [] }
  const read = (...texts: readonly string[]): Promise<void> =>
    pool.readRows([...SETTINGS, ...texts].join(';\n'), ([name, value]) =>
      found[name ?? '']?.push(value ?? ''),
    )
  let error: unknown
  try {
    await read(
      `SELECT 'applied', name FROM ${APPLIED_TABLE}`,
      `SELECT 'fault', concat(name, ' ', fault) FROM (VALUES ${faults.join()}) AS tables (name, fault) WHERE fault IS NOT NULL`,
      `SELECT 'citus' WHERE ${HAS_CITUS}`,
      ...statements.map(plan),
    )
  } catch (failure) {
    error = failure
  }
  const { applied = [], fault: [fault] = [], citus = [] } = found
  const pending = knownMigrations.filter((name) => !applied.includes(name))
  // If they could not be read, only that there is no table of them says which are applied.
  if (pending.length > 0 && (applied.length > 0 || error === undefined || hasReason(error, 'unknownTable'))) {
    const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables, with --server-role ROLE for another role.`
    return { kind: 'schema_behind', reason }
  }
  if (fault !== undefined) return { kind: 'table', reason: fill(notReadyReasons.table, fault) }
  if (citus.length === 0 || !hasReason(error, 'unsupported')) return toNotReady(error)
  // Citus does not support all of them for a distributed table, and requests do without.
  for (const text of statements) {
    const notReady = toNotReady(await read(plan(text)).catch((failure: unknown) => failure))
    if (notReady !== undefined && notReady.kind !== 'unsupported') return notReady
  }
  return undefined
}

/** Returns why an error keeps the service from being ready; undefined if it does not. */
function toNotReady(thrown: unknown): NotReady | undefined {
  if (thrown === undefined) return undefined
  const error = thrown instanceof StatementError ? thrown : new StatementError(thrown, 'notSent')
  // Requests wait for a lock, too, but longer than this check: CREATE INDEX does not block lists. Any other error than these shows that
  // the server knows the statement.
  if (error.unavailable === undefined || error.unavailable === 'locked') return undefined
  const kind = findCause(error.reason).notReady ?? 'unreachable'
  const reason =
    error.reason === 'transactions' ? 'The database cannot be used: {message}.' : notReadyReasons[kind]
  return { kind, reason: fill(reason, error.message), error }
}

/** Puts a message into a reason. */
const fill = (reason: string, message: string): string => reason.replace('{message}', () => message)
