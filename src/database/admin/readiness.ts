import type pg from 'pg'
import { findCause, type NotReadyKind, notReadyReasons } from '../causes.ts'
import type { Pool } from '../pool.ts'
import { HAS_CITUS } from '../session-server.ts'
import { hasReason, StatementError } from '../statement-error.ts'
import { type TableShape, tableFault } from '../table-shape.ts'
import { APPLIED_TABLE, knownMigrations } from './migrations.ts'
import { hasTable } from './server-status.ts'

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
 * Returns the readiness check of a service. A call shares the check in progress, or that the service was ready in the last second.
 * A reason is not cached, so that several failures for a load balancer are several checks.
 */
export function readinessOf(probe: Pool, requests: Pool, needs: Needs): Readiness {
  const checks = checksOf(needs)
  const checkEither = async (): Promise<NotReady | undefined> => {
    const notReady = await check(probe, checks)
    // The probe opens a connection every few seconds, so it is the first to get none. Requests may still be served on theirs.
    return hasReason(notReady?.error, 'outOfConnections') ? check(requests, checks) : notReady
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

/** A statement, and what its rows say about the readiness. */
interface Check {
  readonly text: string
  readonly judge: (rows: readonly pg.QueryResultRow[]) => NotReady | undefined
}

/** PostgreSQL must not plan with a policy that hides rows, also behind a pooler, nor Citus on its workers, of which one may be down. */
const SETTINGS = ['SET LOCAL row_security = off', 'SET LOCAL citus.explain_distributed_queries = off']

function checksOf({ tables, statements }: Needs): readonly Check[] {
  const faults = tables.map((table) => `('${table.name}', ${tableFault(table)})`)
  return [
    {
      text: `SELECT name FROM ${APPLIED_TABLE}`,
      judge: (rows) => findPending(new Set(rows.map(({ name }) => name))),
    },
    {
      text: `SELECT concat(name, ' ', fault) AS fault FROM (VALUES ${faults.join()}) AS tables (name, fault) WHERE fault IS NOT NULL`,
      judge: ([row]) => row && { kind: 'table', reason: fill(notReadyReasons.table, String(row['fault'])) },
    },
    // Planning a statement needs what running it needs: tables, columns, functions, syntax and privileges.
    ...statements.map((text) => ({
      text: `EXPLAIN ${text.replace(/\$\d+/g, 'NULL')}`,
      judge: () => undefined,
    })),
  ]
}

/** Makes all checks in one message. If a statement fails, makes them one by one, to find the first reason. */
async function check(pool: Pool, checks: readonly Check[]): Promise<NotReady | undefined> {
  try {
    const results = await pool.queryAll([...SETTINGS, ...checks.map(({ text }) => text)])
    const rows = results.slice(SETTINGS.length)
    return checks.flatMap(({ judge }, index) => judge(rows[index] ?? []) ?? [])[0]
  } catch (error) {
    const { outcome = 'notSent' } = error instanceof StatementError ? error : {}
    if (outcome !== 'rolledBack') return toNotReady(error)
    // Requests wait for the lock, too, but longer than this check: CREATE INDEX does not block lists.
    if (hasReason(error, 'locked', 'lockTimeout')) return undefined
    return checkOneByOne(pool, checks).catch(toNotReady)
  }
}

async function checkOneByOne(pool: Pool, checks: readonly Check[]): Promise<NotReady | undefined> {
  if (!(await hasTable(pool, APPLIED_TABLE))) return findPending(new Set())
  for (const { text, judge } of checks) {
    try {
      const [rows = []] = (await pool.queryAll([...SETTINGS, text])).slice(SETTINGS.length)
      const notReady = judge(rows)
      if (notReady !== undefined) return notReady
    } catch (error) {
      if (hasReason(error, 'locked', 'lockTimeout')) return undefined
      // Citus supports not all of them for a distributed table, and requests do without.
      if (hasReason(error, 'unsupported') && (await pool.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0)
        continue
      // Any other error shows that the server knows the statement.
      if (!(error instanceof StatementError) || error.unavailable !== undefined) throw error
    }
  }
  return undefined
}

/** Returns that the schema is behind, if migrations are not among the applied ones. */
function findPending(applied: ReadonlySet<string>): NotReady | undefined {
  const pending = knownMigrations.filter((name) => !applied.has(name))
  if (pending.length === 0) return undefined
  const reason = `The database schema is behind; pending migrations: ${pending.join(', ')}. Run "inventory migrate up" as the owner of the tables, with --server-role ROLE for another role.`
  return { kind: 'schema_behind', reason }
}

function toNotReady(thrown: unknown): NotReady {
  const error = thrown instanceof StatementError ? thrown : new StatementError(thrown, 'notSent')
  const kind = findCause(error.reason).notReady ?? 'unreachable'
  const reason =
    error.reason === 'transactions' ? 'The database cannot be used: {said}.' : notReadyReasons[kind]
  return { kind, reason: fill(reason, error.message), error }
}

const fill = (reason: string, said: string): string => reason.replace('{said}', () => said)
