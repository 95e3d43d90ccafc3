import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import type { StatementRunner } from './database.ts'
import { isFatal, messageWithDetail } from './error-meaning.ts'
import { MIGRATIONS_FOLDER, MigrationError } from './migrations.ts'
import { onlyRow } from './only-row.ts'

/** Which role, if any, is the server's, and which one the operators'. The owner of the tables needs no grants. */
export type Roles = Readonly<Partial<Record<'server' | 'operator', string | undefined>>>

/**
 * Whether the role may record the last use of keys, which version 2.0.0 did, and whether it has a session that is neither a
 * command nor a server of version 3.0.0 or newer. Without this privilege, 2.0.0 is not ready.
 */
const LAST_USE = `
  SELECT has_column_privilege($1, 'api_keys', 'last_used_at', 'UPDATE') AS "isGranted", EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND usename = $1 AND application_name NOT LIKE 'petstore-inventory %'
  ) AS "isInUse"`

/**
 * Grants each role what it needs, and revokes from the server's role what only version 2.0.0 needed. The session must be one of
 * the owner of the tables, in a transaction.
 *
 * @param notice called with a line for the user
 * @throws {MigrationError} if PostgreSQL refuses a grant
 */
export async function grantPrivileges(
  transaction: StatementRunner,
  { server, operator }: Roles,
  notice: (line: string) => void,
): Promise<void> {
  try {
    if (server !== undefined) {
      await transaction.query(await grantsOf(transaction, 'server', server))
      await revokeLastUse(transaction, server, notice)
    }
    if (operator !== undefined) await transaction.query(await grantsOf(transaction, 'operator', operator))
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    throw new MigrationError(
      `The privileges cannot be granted: ${messageWithDetail(error)}; nothing was changed.`,
    )
  }
}

/** Returns the statements of `migrations/grants.sql` for a role. */
async function grantsOf(database: StatementRunner, purpose: keyof Roles, role: string): Promise<string> {
  const text = await readFile(path.join(MIGRATIONS_FOLDER, 'grants.sql'), 'utf8')
  const [, server = '', operator = ''] = text.split(/^-- (?:Server|Operators)$/m)
  const names = onlyRow(
    await database.query<{ database: string; schema: string }>(
      `SELECT quote_ident(current_database()) AS database, coalesce(
         (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('inventory')),
         quote_ident(current_schema())
       ) AS schema`,
    ),
  )
  return { server, operator }[purpose]
    .replaceAll('{database}', () => names.database)
    .replaceAll('{schema}', () => names.schema)
    .replaceAll('{role}', () => pg.escapeIdentifier(role))
}

async function revokeLastUse(
  transaction: StatementRunner,
  role: string,
  notice: (line: string) => void,
): Promise<void> {
  const rows = await transaction.query<{ isGranted: boolean; isInUse: boolean }>(LAST_USE, [role])
  const { isGranted, isInUse } = onlyRow(rows)
  if (isGranted && isInUse) {
    notice(
      `${role} keeps a privilege on api_keys that only version 2.0.0 needs, because that version or another program is ` +
        'connected with this role. Run this again when it has ended.',
    )
  } else if (isGranted) {
    await transaction.query(`REVOKE UPDATE (last_used_at) ON api_keys FROM ${pg.escapeIdentifier(role)}`)
  }
}

/**
 * Returns the privileges that the server needs and a role lacks, such as `SELECT on pgmigrations`; undefined if there is no such
 * role. Ignores tables that do not exist yet.
 */
export async function missingPrivileges(
  database: StatementRunner,
  role: string,
): Promise<string[] | undefined> {
  if ((await database.query('SELECT FROM pg_roles WHERE rolname = $1', [role])).length === 0) return undefined
  const statements = await grantsOf(database, 'server', role)
  const grants = [...statements.matchAll(/^GRANT (\w+)(?: \((\w+)\))? ON (?:(DATABASE|SCHEMA) )?(.+) TO /gm)]
  const rows = await database.query<{ privilege: string }>(
    `SELECT concat_ws(' ', kind, '(' || column_name || ')', 'on', lower(class), name) AS privilege
     FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS list (kind, column_name, class, name)
     WHERE NOT CASE
       WHEN class = 'DATABASE' THEN has_database_privilege($1, current_database(), kind)
       WHEN class = 'SCHEMA' THEN has_schema_privilege($1, to_regnamespace(name), kind)
       WHEN column_name IS NULL THEN has_table_privilege($1, to_regclass(name), kind)
       ELSE has_column_privilege($1, to_regclass(name), column_name, kind)
     END`,
    [role, ...[1, 2, 3, 4].map((part) => grants.map((grant) => grant[part] ?? null))],
  )
  return rows.map(({ privilege }) => privilege)
}
