/** A table as its migrations make it. Operators may add columns, constraints, indexes and triggers. */
export interface TableShape {
  readonly name: string
  /** The type of each column, as PostgreSQL writes it, followed by `NOT NULL` if it is required. */
  readonly columns: Readonly<Record<string, string>>
  /** The column that is the primary key. A table without one may be partitioned, and others may inherit from it. */
  readonly key?: string
}

/**
 * Returns an SQL expression for what is wrong with a table and what to do, as "is a view; …". It is null if the table is an ordinary one
 * of this shape, or one that Citus manages. Reads catalogs alone, so it waits for no lock.
 */
export function tableFault({ name, columns, key }: TableShape): string {
  const isPartitionable = key === undefined
  const wanted = Object.entries(columns).map(([column, type]) => `('${column}', '${type}')`)
  return `(
    SELECT coalesce(
      CASE
        WHEN class.oid IS NULL THEN 'does not exist; restore it'
        WHEN class.relkind NOT IN ('r'${isPartitionable ? ", 'p'" : ''}) THEN 'is ' || CASE class.relkind
          WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table'
          WHEN 'p' THEN 'a partitioned table' ELSE 'no table' END || '; put an ordinary table in its place'
        WHEN ${!isPartitionable} AND EXISTS (SELECT FROM pg_inherits WHERE pg_inherits.inhparent = class.oid)
          THEN 'has tables that inherit from it; move their rows into it, and drop them'
        WHEN ${!isPartitionable} AND method.amname <> 'heap'
          THEN format('has the access method %s; set that of ordinary tables, heap', method.amname)
      END,
      (
        SELECT format('has the rule %s; drop it, and use a trigger instead', min(quote_ident(pg_rewrite.rulename)))
        FROM pg_rewrite WHERE pg_rewrite.ev_class = class.oid AND pg_rewrite.rulename <> '_RETURN' HAVING count(*) > 0
      ),
      (
        SELECT format('has %s in place of its column "%s %s"; alter it back', coalesce('"' || found.definition || '"', 'nothing'),
          wanted.name, wanted.type)
        FROM (VALUES ${wanted.join()}) AS wanted (name, type)
          LEFT JOIN LATERAL (
            SELECT concat_ws(' ', quote_ident(attname), type, CASE WHEN attnotnull THEN 'NOT NULL' END,
                CASE WHEN attgenerated <> '' THEN 'GENERATED' END) AS definition,
              type, attnotnull, attgenerated
            FROM pg_attribute, format_type(atttypid, atttypmod) AS type
            WHERE attrelid = class.oid AND attname = wanted.name AND NOT attisdropped
          ) AS found ON true
        WHERE (found.type IN (wanted.type, replace(wanted.type, ' NOT NULL', '')) AND found.attgenerated = ''
          AND (found.attnotnull OR wanted.type NOT LIKE '% NOT NULL')) IS NOT TRUE
        LIMIT 1
      ),
      CASE WHEN ${!isPartitionable} AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = class.oid AND indisprimary AND indisvalid AND indimmediate AND indnkeyatts = 1 AND attname = '${key}'
      ) THEN 'lacks the primary key (${key}); add it, not deferrable' END
    )
    FROM (SELECT to_regclass('${name}')::oid AS oid) AS named
      LEFT JOIN pg_class AS class ON class.oid = named.oid
      LEFT JOIN pg_am AS method ON method.oid = class.relam
  )`
}
