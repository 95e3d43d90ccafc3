import { HAS_CITUS, IS_READ_ONLY } from '../../../database/primary.ts'
import { tableFault } from '../../../database/table-shape.ts'
import { columns, ENTRY_JSON, INVENTORY_TABLE } from '../../entry/columns.ts'
import { ENTRIES_PER_CHUNK } from '../serialized/chunks.ts'

const TABLE = "to_regclass('inventory')::oid"

/** Settings of the sessions that read changes. Like updates (`updateSettings`), they look up a few rows. They stay open. */
export const listSettings = { random_page_cost: '1.1', idle_session_timeout: '0' }

/**
 * SQL text for everything that a validator depends on and that can change without a commit: the start of the server, and how
 * `search_path` and `row_security`, which a configuration reload can change, affect the table. Everything else that a validator
 * depends on is in the table and in the system catalogs, which change only by a commit.
 */
const SOURCE = `concat_ws(' ', pg_postmaster_start_time(), ${TABLE}, row_security_active(${TABLE}))`

const IS_COLUMN = `attrelid = pg_class.oid AND attname IN (${columns.map(({ column }) => `'${column}'`).join()})`

/**
 * Whether every change of the list is a commit that changes this server's snapshot and writes a new version of each changed
 * row. This holds for the table of the migrations: a heap without child tables, the text of whose values does not depend on a
 * setting. With Citus, it can have rows that this server's snapshot does not cover, and a row-level security policy can depend
 * on the time.
 */
const IS_COMPARABLE = `NOT ${HAS_CITUS} AND ${tableFault(INVENTORY_TABLE)} IS NULL AND NOT row_security_active(${TABLE})`

/**
 * Identifies the definition and the storage of the table. Changes if a command other than UPDATE changes the text or the
 * versions of rows, such as ALTER TABLE or VACUUM FULL, and if anything changes that `IS_COMPARABLE` reads about the table. A
 * catalog row that is changed back has another transaction id. A table that had children may get others without a change of its row.
 */
const TABLE_DEFINITION = `(
  SELECT concat_ws(' ', pg_class.oid, relfilenode, pg_class.xmin, pg_namespace.xmin,
    (SELECT string_agg(concat_ws(' ', attnum, pg_attribute.xmin), ' ' ORDER BY attnum) FROM pg_attribute WHERE ${IS_COLUMN}),
    (SELECT concat_ws(' ', indexrelid, pg_index.xmin) FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary),
    (SELECT count(*) FROM pg_inherits WHERE inhparent = pg_class.oid))
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE pg_class.oid = ${TABLE}
)`

/** Returns the columns that a validator is made from. `backend` identifies the server process, as in `Pool`. */
const validatorColumns = (backend: string): string =>
  `${SOURCE} AS source, ${backend} AS backend, pg_current_snapshot()::text AS snapshot, ${IS_READ_ONLY} AS "isReadOnly"`

/** Returns a statement for the validator. It reads no table, so it does not wait for locks. */
export const validatorText = (backend: string): string => `SELECT ${validatorColumns(backend)}`

/**
 * Whether a statement has read what its state says. At other isolation levels, its snapshot may be from before the wait for locks,
 * and not see the rows of a table that was rewritten or truncated meanwhile. And a prepared statement keeps to its table:
 * PostgreSQL does not parse it again for a new one that is found earlier in `search_path`.
 */
const IS_EXACT = `current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')
  AND 'inventory'::regclass::oid = ${TABLE}`

/**
 * Returns a statement that finds the changes since an earlier snapshot with the xmin `$1`: it counts the entries, and returns
 * those whose xmin is `$1` or later. If each replaces a cached entry with the same id, and the count is the same, the result is
 * the list. If at most `$2` entries have changed, they are fetched by ctid, so that PostgreSQL never builds the
 * JSON text of the whole table. Why this is exact:
 *
 * - A row version that is visible now and has an older xmin was visible then, with the same text. Its transaction was not in
 *   progress then, and it committed, so it had committed before. A committed delete that hid it then would hide it now. A row
 *   version never changes in place, and `TABLE_DEFINITION` covers what its text depends on.
 * - So the cached list has all of these entries, and the statement returns all others. Ids are unique, or `TABLE_DEFINITION` differs.
 *   If the cached list has the ids of these, too, it has lost none, or the count would be smaller.
 * - All of it is from one moment, because a statement has one snapshot, with which the next list is compared.
 * - Returning too much is harmless: subtransactions have larger ids than their transaction; a prepared transaction stays in
 *   progress until its second phase; VACUUM and COPY FREEZE keep xmin; locks and multixacts do not affect it.
 * - Ids wrap around: `age()` is an int32, and the caller reads a list older than 2^30 transactions in full. The age of a row older
 *   than 2^31 transactions is negative, so the xmax of the snapshot, below which all visible ids are, is the other bound. The ids
 *   that it lets through nevertheless are 2^32 older than a new one.
 * - Ids are assigned again after a crash, but then the server process is a new one, and the table is read in full.
 */
export const changesText = (backend: string): string =>
  `SELECT ${validatorColumns(backend)}, ${TABLE_DEFINITION} AS "table",
          NOT ${HAS_CITUS} AND ${IS_EXACT} AS "isExact",
          scan.count, coalesce(cardinality(scan.locations), 0) AS changed,
          CASE WHEN cardinality(scan.locations) <= $2 THEN (
            SELECT string_agg(${ENTRY_JSON}, E'\\n' ORDER BY entry.pet_id)
            FROM inventory AS entry WHERE entry.ctid = ANY (scan.locations)
          ) END AS lines
   FROM (
     SELECT count(*) AS count,
            array_agg(entry.ctid) FILTER (
              WHERE age(entry.xmin) <= (SELECT age($1::xid))
                AND age(entry.xmin) > (SELECT age(pg_snapshot_xmax(pg_current_snapshot())::xid))
            ) AS locations
     FROM inventory AS entry
   ) AS scan`

/**
 * Returns a statement that reads all entries by their primary key, a chunk at a time, so that PostgreSQL makes a row of their
 * texts, separated by commas. Each row begins with the state of the table in the same snapshot. If there are no entries, or
 * changes of the table cannot be found, there is one row without a text.
 */
export const chunksText = (backend: string): string => {
  const chunk = (condition: string): string =>
    `SELECT max(chunk.pet_id) AS last, count(*) AS count, string_agg(chunk.text, ',' ORDER BY chunk.pet_id) AS entries
     FROM (
       SELECT entry.pet_id, ${ENTRY_JSON} AS text FROM inventory AS entry
       WHERE ${condition} ORDER BY entry.pet_id LIMIT ${ENTRIES_PER_CHUNK}
     ) AS chunk`
  return `
    WITH RECURSIVE state AS MATERIALIZED (
      SELECT ${validatorColumns(backend)}, ${TABLE_DEFINITION} AS "table", ${IS_COMPARABLE} AND ${IS_EXACT} AS "isExact",
        ${HAS_CITUS} AS "hasCitus"
    ), chunks AS (
      (${chunk('(SELECT state."isExact" FROM state)')})
      UNION ALL
      SELECT next.* FROM chunks CROSS JOIN LATERAL (${chunk('entry.pet_id > chunks.last')}) AS next
      WHERE chunks.count = ${ENTRIES_PER_CHUNK}
    )
    SELECT state.*, chunks.count, chunks.entries FROM state LEFT JOIN chunks ON chunks.entries IS NOT NULL`
}

/** All entries as JSON text, in ascending petId, one per row: Citus supports no recursive query of a distributed table. */
export const ALL_ENTRIES = `SELECT ${ENTRY_JSON} FROM inventory AS entry ORDER BY entry.pet_id`

/** Returns the texts of all statements of lists. */
export const listTexts = (backend: string): string[] => [
  validatorText(backend),
  changesText(backend),
  chunksText(backend),
  ALL_ENTRIES,
]
