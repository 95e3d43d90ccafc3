import pg from 'pg'
import type { Database, StatementRunner } from '../database.ts'
import { isFatal, messageWithDetail } from '../error-meaning.ts'
import { MigrationError } from './errors.ts'

/** What a role is used for. The owner of the tables, who runs the migrations, needs no grants. */
export type Purpose = 'server' | 'operator'

/** The role for each purpose; undefined if there is no separate role for it. */
export type Roles = Readonly<Partial<Record<Purpose, string | undefined>>>

/** Roles, and the privileges that each of them gets. */
export interface Grants {
  readonly roles: Roles
  readonly privileges: Privileges
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

/** @throws {MigrationError} if the table exists and the role of this connection does not own it */
export async function checkOwner(database: StatementRunner, table: string): Promise<void> {
  const [found] = await database.query<{ role: string; owns: boolean }>(
    `SELECT quote_ident(current_user) AS role, pg_has_role(relowner, 'USAGE') AS owns
     FROM pg_class WHERE oid = to_regclass($1)`,
    [table],
  )
  if (found && !found.owns) {
    throw new MigrationError(
      `The role ${found.role} does not own the tables; nothing was changed. Run migrations as their owner; with docker compose, run "docker compose run --rm --no-deps migrate".`,
    )
  }
}

/** @throws {MigrationError} if the table does not exist and the role of this connection may not create it */
export async function checkMayCreate(database: StatementRunner, table: string): Promise<void> {
  const [found] = await database.query<{ role: string; schema: string | null }>(
    `SELECT quote_ident(current_user) AS role, quote_ident(current_schema()) AS schema
     WHERE to_regclass($1) IS NULL AND has_schema_privilege(current_schema(), 'CREATE') IS NOT TRUE`,
    [table],
  )
  if (found?.schema === null) {
    throw new MigrationError(
      `The role ${found.role} has no schema for the tables, because none in its search_path exists; nothing was changed. ` +
        `Create one, or ALTER ROLE ${found.role} SET search_path = …`,
    )
  }
  if (found) {
    throw new MigrationError(
      `The role ${found.role} may not create tables in the schema ${found.schema}; nothing was changed. ` +
        `Run migrations as the owner of the database, or GRANT CREATE ON SCHEMA ${found.schema} TO ${found.role}.`,
    )
  }
}

/** @throws {MigrationError} if one of the roles does not exist */
export async function checkRoles(database: StatementRunner, roles: Roles): Promise<void> {
  for (const role of Object.values(roles)) {
    if (role === undefined || (await roleExists(database, role))) continue
    const name = pg.escapeIdentifier(role)
    throw new MigrationError(
      `There is no role ${name}; nothing was changed. Create it first: CREATE ROLE ${name} LOGIN PASSWORD '…'`,
    )
  }
}

async function roleExists(database: StatementRunner, role: string): Promise<boolean> {
  return (await database.query('SELECT FROM pg_roles WHERE rolname = $1', [role])).length > 0
}

/**
 * Grants the roles the privileges that they need on the existing tables. Revokes nothing. The role of the connection must own
 * the tables.
 *
 * @throws {MigrationError} if PostgreSQL refuses a grant
 */
export async function grantPrivileges(
  database: StatementRunner,
  { roles, privileges }: Grants,
): Promise<void> {
  for (const purpose of ['server', 'operator'] as const) {
    const role = roles[purpose]
    if (role === undefined) continue
    const needed = await privilegesOf(database, role, privileges[purpose], databasePrivileges[purpose])
    for (const { privilege, isDefault, isMissing } of needed) {
      // The owner of the tables may not grant privileges on a database of another owner.
      if (isDefault && !isMissing) continue
      try {
        await database.query(`GRANT ${privilege} TO ${pg.escapeIdentifier(role)}`)
      } catch (error) {
        if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
        throw new MigrationError(
          `No privileges were granted: ${messageWithDetail(error)}; nothing was changed.`,
        )
      }
    }
  }
}

/**
 * Returns the privileges that the server needs and a role lacks, such as `SELECT on pgmigrations`; undefined if there is no such
 * role. Ignores tables and columns that do not exist yet.
 */
export async function missingPrivileges(
  database: StatementRunner,
  role: string,
  privileges: readonly Privilege[],
): Promise<string[] | undefined> {
  if (!(await roleExists(database, role))) return undefined
  const needed = await privilegesOf(database, role, privileges, databasePrivileges.server)
  return needed.flatMap(({ privilege, isMissing }) => (isMissing ? privilege : []))
}

/** A privilege that a role needs. */
interface NeededPrivilege {
  /** Such as `UPDATE (quantity) on inventory`: for messages and for GRANT. */
  readonly privilege: string
  /** Whether every role has it unless it was revoked. */
  readonly isDefault: boolean
  readonly isMissing: boolean
}

async function privilegesOf(
  database: StatementRunner,
  role: string,
  ofTables: readonly Privilege[],
  ofDatabase: readonly string[],
): Promise<NeededPrivilege[]> {
  return database.query<NeededPrivilege>(
    `WITH role AS (
       SELECT oid FROM pg_roles WHERE rolname = $1
     ), needed AS (
       SELECT place, kind, relation.oid AS relation, relnamespace, attname, attnum
       FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS list (kind, table_name, column_name, place)
       JOIN pg_class AS relation ON relation.oid = to_regclass(table_name)
       LEFT JOIN pg_attribute ON attrelid = relation.oid AND attname = column_name
       WHERE column_name IS NULL OR attnum IS NOT NULL
     )
     SELECT privilege, place = 0 AS "isDefault", NOT has AS "isMissing" FROM (
       SELECT 0 AS place, format('%s on database %I', kind, current_database()) AS privilege,
              has_database_privilege(role.oid, current_database(), kind) AS has
       FROM role, unnest($5::text[]) AS kind
       UNION
       SELECT 0, format('USAGE on schema %s', relnamespace::regnamespace), has_schema_privilege(role.oid, relnamespace, 'USAGE')
       FROM role, needed
       UNION
       SELECT place, kind || coalesce(' (' || quote_ident(attname) || ')', '') || format(' on %s', relation::regclass),
              CASE WHEN attnum IS NULL THEN has_table_privilege(role.oid, relation, kind)
                   ELSE has_column_privilege(role.oid, relation, attnum, kind) END
       FROM role, needed
     ) AS privileges
     ORDER BY place, privilege`,
    [
      role,
      ofTables.map(({ kind }) => kind),
      ofTables.map(({ table }) => table),
      ofTables.map(({ column }) => column ?? null),
      ofDatabase,
    ],
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
