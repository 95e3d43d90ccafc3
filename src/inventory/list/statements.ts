import type { Database } from '../../database/database.ts'
import { HAS_CITUS, IS_READ_ONLY } from '../../database/server/server-status.ts'
import { COLUMN_TYPES, columns, ENTRY_JSON } from '../columns.ts'

const TABLE = "to_regclass('inventory')::oid"

const DATABASE = '(SELECT oid FROM pg_database WHERE datname = current_database())'

export const SNAPSHOT = 'pg_current_snapshot()::text'

/**
 * SQL text for everything that a validator depends on and that can change without a commit: the server, its process, and
 * how `search_path` and `row_security`, which a configuration reload can change, affect the table. Everything else that a
 * validator depends on is in the table and in the system catalogs, which change only by a commit.
 */
export function sourceText({ isPooled }: Database): string {
  const parts = [
    'pg_postmaster_start_time()',
    'pg_backend_pid()',
    // Behind a pooler, the number of this client's connections does not identify the server process. As expensive as the
    // other parts together.
    ...(isPooled ? ['(SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid()))'] : []),
    TABLE,
    `row_security_active(${TABLE})`,
  ]
  return `concat_ws(' ', ${parts.join()})`
}

const IS_COLUMN = `attrelid = pg_class.oid AND attname IN (${columns.map(({ column }) => `'${column}'`).join(', ')})`

/**
 * Whether a statement takes its snapshot after it got its locks. At other isolation levels, the snapshot may be from before
 * the wait for a lock, and does not see the rows of a table that was rewritten or truncated meanwhile.
 */
const IS_READ_COMMITTED = "current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')"

const WITHOUT_CITUS = `NOT ${HAS_CITUS}`

/**
 * Whether every change of the list is a commit that changes this server's snapshot and writes a new version of each changed
 * row. This holds only for an ordinary heap table without child tables. Tables of other kinds or access methods, and those
 * of Citus, can have rows that this server's snapshot does not cover. A row-level security policy can depend on the time, and
 * the text of a value of a type that is not in `COLUMN_TYPES` on a setting or on the definition of the type.
 */
export const IS_COMPARABLE = `${WITHOUT_CITUS}
  AND EXISTS (
    SELECT FROM pg_class JOIN pg_am ON pg_am.oid = relam
    WHERE pg_class.oid = ${TABLE} AND relkind = 'r' AND amname = 'heap' AND NOT relhassubclass
      AND NOT row_security_active(pg_class.oid)
      AND ${columns.length} = (
        SELECT count(*) FROM pg_attribute
        WHERE ${IS_COLUMN} AND attgenerated <> 'v'
          AND atttypid = ANY (${COLUMN_TYPES})
      )
      AND EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = pg_class.oid AND indisprimary AND indisvalid AND indimmediate AND indnkeyatts = 1
          AND attname = 'pet_id'
      )
  )`

/** Returns all entries as JSON text, in ascending petId. */
export const ALL_ENTRIES = `SELECT ${ENTRY_JSON} FROM inventory ORDER BY pet_id`

/**
 * Identifies the definition and the storage of the table. Changes if a command other than UPDATE changes the text or the
 * versions of rows, such as ALTER TABLE or VACUUM FULL, and if anything changes that `IS_COMPARABLE` reads about the table.
 * The ids of the table and of its transactions are the same in a copy of the database (CREATE DATABASE … TEMPLATE).
 */
export const TABLE_STATE = `(
  SELECT concat_ws(' ', ${DATABASE}, pg_class.oid, relfilenode, pg_class.xmin, pg_namespace.xmin,
    (SELECT string_agg(concat_ws(' ', attnum, pg_attribute.xmin), ' ' ORDER BY attnum) FROM pg_attribute WHERE ${IS_COLUMN}),
    (SELECT concat_ws(' ', indexrelid, pg_index.xmin) FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary))
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE pg_class.oid = ${TABLE}
)`

/**
 * Equal in two executions of a prepared statement only if `TABLE_STATE` is equal, and much cheaper. PostgreSQL evaluates
 * the constants `'now'` and `'inventory'` when it parses a statement (PostgreSQL manual, section 8.5.1.4), and parses a
 * prepared statement again after a change of `search_path` or of its tables' definitions (PREPARE, Notes). NULL if the
 * table's name now resolves to another table than when the statement was parsed.
 */
const PARSED_FOR = `(
  SELECT concat_ws(' ', 'now'::timestamptz, pg_backend_pid(), pg_postmaster_start_time(), pg_class.oid, xmin)
  FROM pg_class WHERE pg_class.oid = 'inventory'::regclass AND pg_class.oid = ${TABLE}
)`

/** Settings of the sessions that read changes. Like updates (`updateSettings`), they look up a few rows. */
export const listSettings = { random_page_cost: '1.1' }

/**
 * Returns a statement that finds the changes since an earlier snapshot with the xmin `$1`. A row version that was not
 * visible to that snapshot was written by a transaction that was in progress then or began later, so the version's xmin is
 * `$1` or later; docs/decisions.md has the proof. If at most `$2` entries have changed, they are fetched by ctid, so that
 * PostgreSQL never builds the JSON text of the whole table.
 *
 * If `isPrepared` is false, as behind a pooler, the statement returns the state of the table instead of `parsedFor`. Its
 * snapshot must then be from after the wait for locks. A prepared statement is parsed again after such a wait.
 */
export function changesText(source: string, isPrepared: boolean): string {
  return `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly",
                 ${isPrepared ? WITHOUT_CITUS : `${WITHOUT_CITUS} AND ${IS_READ_COMMITTED}`} AS "isExact",
                 ${isPrepared ? `${PARSED_FOR} AS "parsedFor"` : `${TABLE_STATE} AS "table"`}, count, changed,
                 CASE WHEN changed <= $2 THEN (
                   SELECT string_agg(${ENTRY_JSON}, E'\\n' ORDER BY pet_id) FROM inventory WHERE ctid = ANY (places)
                 ) END AS lines
          FROM (
            SELECT count, places, coalesce(cardinality(places), 0) AS changed
            FROM (
              SELECT count(*) AS count,
                     array_agg(ctid) FILTER (WHERE age(xmin) <= (SELECT age($1::xid))) AS places
              FROM inventory
            ) AS scan
          ) AS scan`
}

/** Returns a statement for the state of the table, which is compared after `parsedFor` has changed. */
export function tableText(source: string): string {
  return `SELECT ${source} AS source, ${TABLE_STATE} AS "table"`
}
