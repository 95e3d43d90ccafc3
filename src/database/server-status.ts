import type { Database, StatementRunner } from './pool.ts'

/** What a PostgreSQL server says of itself. */
export interface ServerStatus {
  /** Its version, as in `18.4`. */
  readonly version: string
  readonly connections: {
    /** Of everyone, to any database of the server. */
    readonly inUse: number
    /** Those of them that programs of this project opened to this database. */
    readonly ofThisService: number
    /** How many there can be. */
    readonly limit: number
  }
  /** For whom commits do not wait for the disk (`synchronous_commit = off`), so that a crash loses them. */
  readonly asynchronousCommit: readonly string[]
}

/** True for a row of `pg_db_role_setting` with which commits do not wait for the disk. */
export const SETS_ASYNCHRONOUS_COMMIT =
  "array_to_string(setconfig, E'\\n') ~* '(^|\\n)synchronous_commit=(off|false|no|0)(\\n|$)'"

export async function serverStatus(database: Database): Promise<ServerStatus> {
  // A role without privileges sees of other roles' connections that they are there, and their application_name.
  const [row] = await database.query<{ version: string; used: number; own: number; most: number }>(
    `SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
            (SELECT sum(numbackends)::integer FROM pg_stat_database) AS used,
            (SELECT count(*)::integer FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE 'petstore-inventory%') AS own,
            current_setting('max_connections')::integer AS most`,
  )
  if (row === undefined) throw new Error('a SELECT of one row has returned none')
  // What ALTER ROLE and ALTER DATABASE have set, as the server may have another role than this session.
  const asynchronous = await database.query<{ whom: string }>(
    `SELECT 'this session' AS whom WHERE current_setting('synchronous_commit') = 'off'
     UNION ALL
     SELECT concat_ws(' in ', 'role ' || rolname, 'database ' || datname)
     FROM pg_db_role_setting
     LEFT JOIN pg_roles ON pg_roles.oid = setrole
     LEFT JOIN pg_database ON pg_database.oid = setdatabase
     WHERE (setdatabase = 0 OR datname = current_database())
       AND ${SETS_ASYNCHRONOUS_COMMIT}
     ORDER BY whom`,
  )
  return {
    asynchronousCommit: asynchronous.map(({ whom }) => whom),
    version: row.version,
    connections: { inUse: row.used, ofThisService: row.own, limit: row.most },
  }
}

/** Those of the time limits that no session of this role has unless it sets them. */
export async function missingLimits(database: Database): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `SELECT name FROM unnest(ARRAY['lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout']) AS name
     WHERE current_setting(name) = '0'`,
  )
  return rows.map(({ name }) => name)
}

/** True where no transaction can write now. */
export async function isServerReadOnly(database: Database): Promise<boolean> {
  const [row] = await database.query<{ isReadOnly: boolean }>(
    `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "isReadOnly"`,
  )
  return row?.isReadOnly === true
}

/** True where the database has a table of that name. */
export async function hasTable(database: StatementRunner, name: string): Promise<boolean> {
  const [row] = await database.query<{ exists: boolean }>('SELECT to_regclass($1) IS NOT NULL AS exists', [
    name,
  ])
  return row?.exists === true
}
