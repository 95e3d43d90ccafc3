import pg from 'pg'
import type { Database } from './pool.ts'

/** What a role is for. The owner of the tables, who runs the migrations, needs no grants. */
export type Purpose = 'server' | 'operator'

/** The role that each purpose has, where it has one of its own. */
export type Roles = Readonly<Partial<Record<Purpose, string | undefined>>>

/** A role cannot have or do what is asked for; the message says what to do, and nothing was changed. */
export class RoleError extends Error {
  override readonly name = 'RoleError'
}

/** All that each purpose needs, by table; what is not here stays forbidden. A name in parentheses is a column. */
const privileges: Readonly<Record<Purpose, Readonly<Record<string, string>>>> = {
  server: {
    inventory: 'SELECT, UPDATE (quantity)',
    api_keys: 'SELECT, UPDATE (last_used_at)',
    pgmigrations: 'SELECT',
  },
  operator: {
    inventory: 'SELECT, INSERT, UPDATE, DELETE',
    api_keys: 'SELECT, INSERT, UPDATE (revoked_at)',
    pgmigrations: 'SELECT',
  },
}

/** Held while grants are made: two at once on one table would fail. */
const GRANT_LOCK = 7_301_482_267

/** @throws {RoleError} where there is a table of that name, and the role of this connection does not own it */
export async function checkOwner(client: pg.Client, table: string): Promise<void> {
  const { rows } = await client.query<{ role: string; owns: boolean }>(
    `SELECT quote_ident(current_user) AS role, pg_has_role(relowner, 'USAGE') AS owns
     FROM pg_class WHERE oid = to_regclass($1)`,
    [table],
  )
  const [found] = rows
  if (found && !found.owns) {
    throw new RoleError(
      `The role ${found.role} does not own the tables; nothing was changed. Run migrations as their owner.`,
    )
  }
}

/** @throws {RoleError} where one of the roles does not exist */
export async function checkRoles(client: pg.Client, roles: Roles): Promise<void> {
  for (const role of Object.values(roles)) {
    if (role === undefined) continue
    const { rows } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [role])
    if (rows.length === 0) {
      const name = pg.escapeIdentifier(role)
      throw new RoleError(
        `There is no role ${name}; nothing was changed. Create it first: CREATE ROLE ${name} LOGIN PASSWORD '…'`,
      )
    }
  }
}

/**
 * Grants roles what they need on the tables that are there, all or nothing; what they have already stays. To be called
 * by the owner of the tables.
 */
export async function grantPrivileges(
  client: pg.Client,
  roles: Roles,
  log: (line: string) => void,
): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    'SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NOT NULL',
    [Object.keys(privileges.server)],
  )
  const statements = [`SELECT pg_advisory_xact_lock(${GRANT_LOCK})`]
  const lines: string[] = []
  for (const purpose of ['server', 'operator'] as const) {
    const role = roles[purpose]
    if (role === undefined) continue
    const name = pg.escapeIdentifier(role)
    for (const { name: table } of rows) {
      statements.push(`GRANT ${privileges[purpose][table]} ON ${table} TO ${name}`)
    }
    lines.push(`Granted the role ${name} what the ${purpose} needs.`)
  }
  if (lines.length === 0) return
  // Sent as one text, the statements are one transaction.
  await client.query(statements.join('; '))
  for (const line of lines) log(line)
}

/** True where the role of this connection may do all that the server needs to; the tables must be there. */
export async function mayServe(database: Database): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(
    `SELECT has_table_privilege('inventory', 'SELECT') AND has_column_privilege('inventory', 'quantity', 'UPDATE')
        AND has_table_privilege('api_keys', 'SELECT') AND has_column_privilege('api_keys', 'last_used_at', 'UPDATE')
        AS may`,
  )
  return row?.may === true
}
