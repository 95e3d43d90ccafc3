import pg from 'pg'
import type { Database } from '../database.ts'

/** What a role is used for. The owner of the tables, who runs the migrations, needs no grants. */
export type Purpose = 'server' | 'operator'

/** The role for each purpose; undefined if there is no separate role for it. */
export type Roles = Readonly<Partial<Record<Purpose, string | undefined>>>

/** Roles, and the privileges that each of them gets. */
export interface Grants {
  readonly roles: Roles
  readonly privileges: Privileges
}

/** A role does not exist or lacks a privilege. Nothing was changed. The message says what to do. */
export class RoleError extends Error {
  override readonly name = 'RoleError'
}

/** The privileges were not granted, after the migrations were committed. The message says why and what to do. */
export class GrantError extends Error {
  override readonly name = 'GrantError'

  constructor(cause: unknown) {
    const reason = cause instanceof Error ? cause.message : cause
    super(
      `The migrations are applied, but no privileges were granted: ${reason}. Run it again once the cause is removed.`,
    )
  }
}

/** A privilege on a table, or on a column of it. */
export interface Privilege {
  readonly kind: 'SELECT' | 'INSERT' | 'UPDATE' | 'DELETE'
  readonly table: string
  readonly column?: string
}

/** The privileges on tables for each purpose. */
export type Privileges = Readonly<Record<Purpose, readonly Privilege[]>>

/** The privileges on the database for each purpose. Every role has them by default, and may have lost them. */
const databasePrivileges: Readonly<Record<Purpose, readonly string[]>> = {
  server: ['CONNECT'],
  operator: ['CONNECT', 'TEMPORARY'],
}

/** Key of the advisory lock for grants. Without it, one of two sessions that grant on the same table at once would fail. */
const GRANT_LOCK = 7_301_482_267

/** @throws {RoleError} if the table exists and the role of this connection does not own it */
export async function checkOwner(client: pg.Client, table: string): Promise<void> {
  const { rows } = await client.query<{ role: string; owns: boolean }>(
    `SELECT quote_ident(current_user) AS role, pg_has_role(relowner, 'USAGE') AS owns
     FROM pg_class WHERE oid = to_regclass($1)`,
    [table],
  )
  const [found] = rows
  if (found && !found.owns) {
    throw new RoleError(
      `The role ${found.role} does not own the tables; nothing was changed. Run migrations as their owner; with docker compose, run "docker compose run --rm --no-deps migrate".`,
    )
  }
}

/** @throws {RoleError} if the table does not exist and the role of this connection may not create it */
export async function checkMayCreate(client: pg.Client, table: string): Promise<void> {
  const { rows } = await client.query<{ role: string; schema: string | null }>(
    `SELECT quote_ident(current_user) AS role, quote_ident(current_schema()) AS schema
     WHERE to_regclass($1) IS NULL AND has_schema_privilege(current_schema(), 'CREATE') IS NOT TRUE`,
    [table],
  )
  const [found] = rows
  if (found?.schema === null) {
    throw new RoleError(
      `The role ${found.role} has no schema for the tables, because none in its search_path exists; nothing was changed. ` +
        `Create one, or ALTER ROLE ${found.role} SET search_path = …`,
    )
  }
  if (found) {
    throw new RoleError(
      `The role ${found.role} may not create tables in the schema ${found.schema}; nothing was changed. ` +
        `Run migrations as the owner of the database, or GRANT CREATE ON SCHEMA ${found.schema} TO ${found.role}.`,
    )
  }
}

/** @throws {RoleError} if one of the roles does not exist */
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
 * Grants the roles the privileges that they need on the existing tables, in one transaction. Revokes nothing. The role of the
 * connection must own the tables.
 */
export async function grantPrivileges(
  client: pg.Client,
  { roles, privileges }: Grants,
  log: (line: string) => void,
): Promise<void> {
  if (Object.values(roles).every((role) => role === undefined)) return
  const tables = [...new Set(Object.values(privileges).flatMap((list) => list.map(({ table }) => table)))]
  const { rows } = await client.query<{ name: string }>(
    'SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NOT NULL',
    [tables],
  )
  const existing = new Set(rows.map(({ name }) => name))
  const statements = [`SELECT pg_advisory_xact_lock(${GRANT_LOCK})`]
  const lines: string[] = []
  for (const purpose of ['server', 'operator'] as const) {
    const role = roles[purpose]
    if (role === undefined) continue
    const name = pg.escapeIdentifier(role)
    for (const { kind, table, column } of privileges[purpose]) {
      if (!existing.has(table)) continue
      statements.push(`GRANT ${kind} ${column === undefined ? '' : `(${column})`} ON ${table} TO ${name}`)
    }
    statements.push(...(await missingDefaults(client, role, databasePrivileges[purpose], tables)))
    lines.push(`Granted the role ${name} what the ${purpose} needs.`)
  }
  // PostgreSQL runs statements that are sent as one text in one transaction.
  await client.query(statements.join('; '))
  for (const line of lines) log(line)
}

/** Returns the statements that grant a role those privileges which every role has by default, but this one lacks. */
async function missingDefaults(
  client: pg.Client,
  role: string,
  ofDatabase: readonly string[],
  tables: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ statement: string }>(
    `SELECT format('GRANT %s ON DATABASE %I TO %I', privilege, current_database(), $1::text) AS statement
     FROM unnest($2::text[]) AS privilege
     WHERE NOT has_database_privilege($1::text::name, current_database(), privilege)
     UNION
     SELECT format('GRANT USAGE ON SCHEMA %s TO %I', relnamespace::regnamespace, $1::text)
     FROM unnest($3::text[]) AS name JOIN pg_class ON pg_class.oid = to_regclass(name)
     WHERE NOT has_schema_privilege($1::text::name, relnamespace, 'USAGE')`,
    [role, ofDatabase, tables],
  )
  return rows.map(({ statement }) => statement)
}

/** A role that the server uses, with the privileges that it lacks. */
export interface ServerRole {
  readonly role: string
  /** Such as `SELECT on pgmigrations`. Empty if the role has all privileges that the server needs. */
  readonly missing: readonly string[]
}

/**
 * Finds the server's roles, and which of the server's privileges each of them lacks. These are the role `named`, if it exists,
 * and all roles with an UPDATE privilege on a single column that `grantPrivileges` grants only to the server. Tables and columns
 * that do not exist yet are ignored.
 */
export async function serverRoles(
  database: Database,
  privileges: readonly Privilege[],
  named: string | undefined,
): Promise<ServerRole[]> {
  const list = privileges.map(
    ({ kind, table, column }, index) =>
      `(${index + 1}, '${table}', ${column === undefined ? 'NULL' : `'${column}'`}, '${kind}')`,
  )
  return database.query<{ role: string; missing: string[] }>(
    `WITH needed (place, relation, attribute, privilege) AS (
       SELECT place, relation.oid, attribute.attnum, privilege
       FROM (VALUES ${list.join(', ')}) AS list (place, table_name, column_name, privilege)
       JOIN pg_class AS relation ON relation.oid = to_regclass(table_name)
       LEFT JOIN pg_attribute AS attribute ON attrelid = relation.oid AND attname = column_name
       WHERE column_name IS NULL OR attnum IS NOT NULL
     ), roles AS (
       SELECT pg_roles.oid, rolname FROM pg_roles WHERE rolname = $1
       UNION
       SELECT pg_roles.oid, rolname
       FROM needed
       JOIN pg_attribute ON attrelid = relation AND attnum = attribute
       CROSS JOIN LATERAL aclexplode(attacl) AS acl
       JOIN pg_roles ON pg_roles.oid = grantee
       WHERE privilege_type = 'UPDATE'
     ), missing (role, place, text) AS (
       SELECT roles.oid, 0, format('CONNECT on database %I', current_database())
       FROM roles
       WHERE NOT has_database_privilege(roles.oid, current_database(), 'CONNECT')
       UNION
       SELECT roles.oid, 0, format('USAGE on schema %s', relnamespace::regnamespace)
       FROM roles, needed
       JOIN pg_class ON pg_class.oid = relation
       WHERE NOT has_schema_privilege(roles.oid, relnamespace, 'USAGE')
       UNION ALL
       SELECT roles.oid, place, privilege || coalesce(' (' || quote_ident(attname) || ')', '') || format(' on %s', relation::regclass)
       FROM roles, needed
       LEFT JOIN pg_attribute ON attrelid = relation AND attnum = attribute
       WHERE NOT CASE
         WHEN attribute IS NULL THEN has_table_privilege(roles.oid, relation, privilege)
         ELSE has_column_privilege(roles.oid, relation, attribute, privilege)
       END
     )
     SELECT rolname::text AS role,
            ARRAY(SELECT text FROM missing WHERE role = roles.oid ORDER BY place, text) AS missing
     FROM roles
     ORDER BY rolname`,
    [named ?? null],
  )
}

/** Returns whether the role of this connection has the privileges. The tables must exist. */
export async function hasPrivileges(database: Database, privileges: readonly Privilege[]): Promise<boolean> {
  const checks = privileges.map(({ kind, table, column }) =>
    column === undefined
      ? `has_table_privilege('${table}', '${kind}')`
      : `has_column_privilege('${table}', '${column}', '${kind}')`,
  )
  const [row] = await database.query<{ hasAll: boolean }>(`SELECT ${checks.join(' AND ')} AS "hasAll"`)
  return row?.hasAll === true
}
