import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { APPLIED_TABLE, MIGRATIONS_FOLDER } from '../migrations.ts'
import { onlyRow } from '../only-row.ts'
import { OperatorError } from '../operator-error.ts'
import type { StatementRunner } from '../statement.ts'
import { StatementError } from '../statement-error.ts'
import { inTransaction, type TransactionOptions } from './transaction.ts'

/** The roles to grant privileges. The owner of the tables needs none. */
export type Roles = Readonly<Partial<Record<'server' | 'operator', string | undefined>>>

/**
 * Grants each role what it needs, as the owner of the tables, in one transaction. Processes wait for each other, and for migrations,
 * because two grants on a table at the same time fail.
 *
 * @throws {OperatorError} if PostgreSQL has refused a grant, or has only sent a warning and not made it
 * @throws what `inTransaction` throws
 */
export async function grantPrivileges(options: TransactionOptions, roles: Roles): Promise<void> {
  const { PG_MIGRATE_LOCK_ID } = await import('node-pg-migrate')
  const granted = inTransaction(options, async (transaction) => {
    await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
    for (const purpose of ['server', 'operator'] as const) {
      const role = roles[purpose]
      if (role === undefined) continue
      await transaction.query(await readGrants(transaction, purpose, role))
      if ((await transaction.query(REACHES_TABLES, [role])).length === 0)
        throw new OperatorError(
          `The owner of the tables may not grant the role "${role}" CONNECT on the database or USAGE on the schema; ${UNCHANGED}. Run this again when the owner of the database has granted both.`,
        )
    }
  })
  await granted.catch((error: unknown) => {
    throw explained('The privileges cannot be granted', error, UNCHANGED)
  })
}

/** Returns an OperatorError if PostgreSQL has rejected a statement; any other error as it is. */
export function explained(what: string, error: unknown, outcome: string): unknown {
  const isRejected = error instanceof StatementError && error.outcome === 'rolledBack'
  if (!isRejected || error.blame === 'server') return error
  const advice = error.reason === 'forbidden' ? ' Run this as the owner of the tables.' : ''
  return new OperatorError(`${what}: ${error.detailedMessage}; ${outcome}.${advice}`, { cause: error })
}

const UNCHANGED = 'no privilege was changed, and migrations that were applied remain'

/** If their owner does not own the database or the schema, PostgreSQL only warns of these grants. */
const REACHES_TABLES = `SELECT WHERE has_database_privilege($1, current_database(), 'CONNECT')
  AND has_schema_privilege($1, (SELECT relnamespace FROM pg_class WHERE oid = '${APPLIED_TABLE}'::regclass), 'USAGE')`

/** Returns the statements of `migrations/grants.sql` for a role. */
async function readGrants(database: StatementRunner, purpose: keyof Roles, role: string): Promise<string> {
  const text = await readFile(path.join(MIGRATIONS_FOLDER, 'grants.sql'), 'utf8')
  const [, server = '', operator = ''] = text.split(/^-- (?:Server|Operators)$/m)
  const { database: name, schema } = await findPlaceOfTables(database)
  return { server, operator }[purpose]
    .replaceAll('{database}', () => pg.escapeIdentifier(name))
    .replaceAll('{schema}', () => pg.escapeIdentifier(schema))
    .replaceAll('{role}', () => pg.escapeIdentifier(role))
}

/** Returns the database and the schema of the tables, or the schema where they will be. */
export async function findPlaceOfTables(database: StatementRunner) {
  const rows = await database.query<{ database: string; schema: string }>(
    `SELECT current_database()::text AS database, coalesce(nspname, current_schema(), 'public')::text AS schema
     FROM (SELECT to_regclass('${APPLIED_TABLE}') AS oid) AS applied
     LEFT JOIN pg_class USING (oid) LEFT JOIN pg_namespace ON pg_namespace.oid = relnamespace`,
  )
  return onlyRow(rows)
}
