import type { Database, StatementRunner } from './database.ts'
import { onlyRow } from './only-row.ts'

/** What `inventory status` shows of a PostgreSQL server. */
export interface ServerStatus {
  /** The version, such as `18.4`. */
  readonly version: string
  /** Why sessions cannot write: the server is a standby, or `default_transaction_read_only` is on; null if they can. */
  readonly readOnly: 'standby' | 'setting' | null
}

/** SQL condition for a read-only server: a standby, or one with `default_transaction_read_only`. */
export const IS_READ_ONLY = "(pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')"

/** SQL condition for a database with the extension Citus, which can keep tables on other servers. */
export const HAS_CITUS = "EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

/** Queries the status of the server. The role needs no privileges. */
export async function serverStatus(database: Database): Promise<ServerStatus> {
  const rows = await database.query<ServerStatus>(
    `SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
            CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN ${IS_READ_ONLY} THEN 'setting' END AS "readOnly"`,
  )
  return onlyRow(rows)
}

/** Returns whether the database has Citus. */
export async function hasCitus(database: StatementRunner): Promise<boolean> {
  return (await database.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0
}

/** A table with row security that applies to the role, so that it may not see all rows. */
export interface RowSecurity {
  readonly table: string
  readonly role: string
}

/** Returns where row security applies to the role of the session, or to another one. */
export async function rowSecurityOf(
  database: StatementRunner,
  tables: readonly string[],
  role?: string,
): Promise<RowSecurity[]> {
  return database.query<{ table: string; role: string }>(
    `SELECT relname AS "table", rolname AS role FROM pg_class
     JOIN pg_roles ON rolname = current_user OR rolname = $2
     WHERE pg_class.oid IN (SELECT to_regclass(name) FROM unnest($1::text[]) AS name)
       AND relrowsecurity AND NOT rolsuper AND NOT rolbypassrls
       AND (relforcerowsecurity OR NOT pg_has_role(pg_roles.oid, relowner, 'USAGE'))
     ORDER BY relname, rolname`,
    [tables, role ?? null],
  )
}

/** Lists the triggers of a table that do not fire, such as those of the history, which then has gaps. */
export async function disabledTriggers(database: StatementRunner, table: string): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `SELECT quote_ident(tgname) AS name FROM pg_trigger
     WHERE tgrelid = to_regclass($1) AND NOT tgisinternal AND tgenabled IN ('D', 'R') ORDER BY tgname`,
    [table],
  )
  return rows.map(({ name }) => name)
}

/**
 * Returns whether the database has a table of that name. PostgreSQL skips the schemas of the `search_path` that the role may not
 * use. If the table is in one of these, the cast of its qualified name fails with SQLSTATE 42501, which names the schema.
 */
export async function hasTable(database: StatementRunner, name: string): Promise<boolean> {
  const rows = await database.query(
    `SELECT WHERE coalesce(to_regclass($1), (
       SELECT format('%I.%I', nspname, relname)::regclass
       FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
       WHERE relname = $1 AND NOT has_schema_privilege(relnamespace, 'USAGE') LIMIT 1)) IS NOT NULL`,
    [name],
  )
  return rows.length > 0
}
