import { onServer } from '../support/on-server.ts'

/**
 * Lists what the role of the session may do, from the catalogs. Leaves out what PostgreSQL grants to everyone without effect on
 * others: reading its catalogs, and calling its functions but those for large objects.
 */
const REACHABLE = `
  WITH relations AS (
    SELECT oid, oid::regclass AS name, relkind, relnamespace::regnamespace::text ~ '^(pg_|information_schema)' AS "isSystem"
    FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  ), kinds AS (
    SELECT unnest(string_to_array('SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER'
      || CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN ' MAINTAIN' ELSE '' END, ' ')) AS kind
  )
  SELECT format('%s on %s', kind, name) AS reachable FROM relations, kinds
  WHERE relkind <> 'S' AND has_table_privilege(oid, kind) AND NOT ("isSystem" AND kind = 'SELECT')
  UNION ALL
  SELECT format('%s (%s) on %s', kind, attname, name)
  FROM relations JOIN pg_attribute ON attrelid = oid AND NOT attisdropped, unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) AS kind
  WHERE relkind <> 'S' AND has_column_privilege(oid, attnum, kind) AND NOT has_table_privilege(oid, kind)
    AND NOT ("isSystem" AND kind = 'SELECT')
  UNION ALL
  SELECT format('%s on sequence %s', kind, name) FROM relations, unnest('{USAGE,SELECT,UPDATE}'::text[]) AS kind
  WHERE relkind = 'S' AND has_sequence_privilege(oid, kind)
  UNION ALL
  SELECT format('%s on schema %s', kind, nspname) FROM pg_namespace, unnest('{CREATE,USAGE}'::text[]) AS kind
  WHERE has_schema_privilege(oid, kind) AND NOT (nspname IN ('pg_catalog', 'information_schema') AND kind = 'USAGE')
  UNION ALL
  SELECT format('EXECUTE on %s', oid::regprocedure) FROM pg_proc
  WHERE has_function_privilege(oid, 'EXECUTE')
    AND (pronamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') OR prosrc ~ '^be_lo')
  UNION ALL
  SELECT format('%s on the database', kind) FROM unnest('{CREATE,CONNECT,TEMPORARY}'::text[]) AS kind
  WHERE has_database_privilege(current_database(), kind)
  UNION ALL
  SELECT format('CREATE in tablespace %s', spcname) FROM pg_tablespace WHERE has_tablespace_privilege(oid, 'CREATE')
  UNION ALL
  SELECT format('member of %s', rolname) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER') AND rolname <> current_user
  UNION ALL
  SELECT 'an attribute' FROM pg_roles
  WHERE rolname = current_user AND (rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls)
  UNION ALL
  SELECT format('owner of a row of %s', classid::regclass) FROM pg_shdepend WHERE refobjid = current_user::regrole AND deptype = 'o'
  UNION ALL
  SELECT 'a large object' FROM pg_largeobject_metadata`

/** Returns what the role of an address may do, in alphabetical order. */
export async function reachable(url: string): Promise<unknown[]> {
  return (await onServer(url, REACHABLE)).map((row) => row['reachable']).sort()
}
