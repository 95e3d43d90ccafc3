import type { Database } from '../../database/pool.ts'
import { SETS_ASYNCHRONOUS_COMMIT } from '../../database/server-status.ts'
import { columns, ENTRY_JSON } from '../columns.ts'

const TABLE = "to_regclass('inventory')::oid"

export const SNAPSHOT = 'pg_current_snapshot()::text'

export const IS_READ_ONLY = "(pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')"

/**
 * Everything that a validator rests on and that can change without a commit: the server and its process, and, by a reload
 * of the configuration, what `search_path` and `row_security` make of the table's name. Whatever else it rests on is in
 * the system catalogs, which change by a commit only, as the entries do.
 */
export function sourceText({ isPooled }: Database): string {
  const parts = [
    'pg_postmaster_start_time()',
    'pg_backend_pid()',
    // Costs as much as all the others, and is needed only where the process is not the one that this client connected to.
    ...(isPooled ? ['(SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid()))'] : []),
    TABLE,
    `row_security_active(${TABLE})`,
  ]
  return `concat_ws(' ', ${parts.join()})`
}

const IS_COLUMN = `attrelid = pg_class.oid AND attname IN (${columns.map(({ column }) => `'${column}'`).join(', ')})`

const WITHOUT_CITUS = "NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

/**
 * True where every change of the list is a commit that moves this server's snapshot, and writes a new version of each row
 * that changes: only for an ordinary table without
 * children that is stored here. Other kinds and access methods can have rows elsewhere, as the tables of an extension that
 * distributes them do; a row security policy can depend on the time; the text of other types can change with the type.
 */
export const IS_COMPARABLE = `${WITHOUT_CITUS}
  AND EXISTS (
    SELECT FROM pg_class JOIN pg_am ON pg_am.oid = relam
    WHERE pg_class.oid = ${TABLE} AND relkind = 'r' AND amname = 'heap' AND NOT relhassubclass
      AND NOT row_security_active(pg_class.oid)
      AND ${columns.length} = (
        SELECT count(*) FROM pg_attribute
        WHERE ${IS_COLUMN} AND attgenerated <> 'v'
          AND atttypid = ANY ('{bigint,integer,smallint,text,varchar}'::regtype[])
      )
      AND EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = pg_class.oid AND indisprimary AND indisvalid AND indimmediate AND indnkeyatts = 1
          AND attname = 'pet_id'
      )
  )`

/** Which table the name leads to, of which database: equal on a primary and its standby if they lead to the same rows. */
export const PLACE = `concat_ws(' ',
  (SELECT oid FROM pg_database WHERE datname = current_database()), ${TABLE}, row_security_active(${TABLE}))`

/**
 * The validator with the position of the WAL. A statement takes its snapshot first, so whatever that covers is before the
 * end of the WAL, and before the end of what has reached the disk, too, unless it committed without waiting for the disk
 * (`synchronous_commit = off`). Such commits are acknowledged nevertheless; whether there can be any is asked here.
 */
export function positionText(source: string): string {
  return `SELECT source, snapshot, "isReadOnly", place, "startedAt", "isAsynchronous",
                 CASE WHEN "isPrimary" THEN pg_current_wal_flush_lsn()::text END AS flushed,
                 CASE WHEN "isPrimary" THEN pg_current_wal_insert_lsn()::text END AS inserted,
                 CASE WHEN "isPrimary" THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline
          FROM (
            SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly", ${PLACE} AS place,
                   NOT pg_is_in_recovery() AS "isPrimary",
                   extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
                   current_setting('synchronous_commit') = 'off' OR EXISTS (
                     SELECT FROM pg_db_role_setting
                     WHERE ${SETS_ASYNCHRONOUS_COMMIT} AND setdatabase IN (
                       0, (SELECT oid FROM pg_database WHERE datname = current_database())
                     )
                   ) AS "isAsynchronous"
          ) AS server`
}

/** Where a standby stands, before the snapshot of any later statement on the same connection. */
export const REPLAY_POSITION =
  'SELECT pg_is_in_recovery() AS "isStandby", pg_last_wal_replay_lsn()::text AS replayed'

/** Fails where the entries cannot be read. */
export const TABLE_ACCESS = 'SELECT FROM inventory LIMIT 0'

/** What a standby shows now, for a comparison with the primary. */
export const STANDBY_POINT = `SELECT pg_is_in_recovery() AS "isStandby", ${SNAPSHOT} AS snapshot, ${PLACE} AS place`

/**
 * Whether one of the transactions `$1` is committed on a standby. Its snapshots name the oldest transaction in progress and
 * the first that it has not seen, and none in between, so that it has to be asked for each.
 */
export const IS_AHEAD = `SELECT EXISTS (SELECT FROM unnest($1::xid8[]) AS id WHERE pg_xact_status(id) = 'committed') AS "isAhead"`

/** The query for all entries, each the JSON text of one, in ascending petId. */
export const ALL_ENTRIES = `SELECT ${ENTRY_JSON} FROM inventory ORDER BY pet_id`

/**
 * Differs after whatever gives rows another text or other versions without an UPDATE, such as ALTER TABLE or VACUUM FULL,
 * and after everything that `IS_COMPARABLE` reads of the table has changed.
 */
export const TABLE_STATE = `(
  SELECT concat_ws(' ', pg_class.oid, relfilenode, pg_class.xmin, pg_namespace.xmin,
    (SELECT string_agg(concat_ws(' ', attnum, pg_attribute.xmin), ' ' ORDER BY attnum) FROM pg_attribute WHERE ${IS_COLUMN}),
    (SELECT concat_ws(' ', indexrelid, pg_index.xmin) FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary))
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE pg_class.oid = ${TABLE}
)`

/**
 * Equal in two runs of one prepared statement only if `TABLE_STATE` is equal, and much cheaper. PostgreSQL reads `'now'`
 * and `'inventory'` when it parses a statement (PostgreSQL manual, section 8.5.1.4), and parses a prepared statement again
 * after a change of its tables' definitions or of `search_path` (PREPARE, Notes). NULL if the name of the table now stands
 * for another one than in the statement.
 */
const PARSED_FOR = `(
  SELECT concat_ws(' ', 'now'::timestamptz, pg_backend_pid(), pg_postmaster_start_time(), pg_class.oid, xmin)
  FROM pg_class WHERE pg_class.oid = 'inventory'::regclass AND pg_class.oid = ${TABLE}
)`

/** What the sessions set that read changes: they look up a few rows, as updates do (`updateSettings`). */
export const listSettings = { random_page_cost: '1.1' }

/**
 * Every version of a row that an earlier snapshot could not see was written by a transaction that was in progress then or
 * began later, so one that is not older than the oldest in progress then, `$1`. docs/decisions.md has the argument. Up to
 * `$2` entries are returned, found by their places, so that PostgreSQL does not build a text of the whole table.
 *
 * A statement that is not prepared, as behind a pooler, returns the state of the table instead of `parsedFor`.
 */
export function changesText(source: string, isPrepared: boolean): string {
  return `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly",
                 pg_is_in_recovery() AS "isStandby", ${WITHOUT_CITUS} AS "isLocal",
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

/** The state of the table, for a comparison after `parsedFor` has changed. */
export function tableText(source: string): string {
  return `SELECT ${source} AS source, ${TABLE_STATE} AS "table"`
}
