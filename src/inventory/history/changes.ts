import pg from 'pg'
import { copyLines } from '../../database/protocol/copy-text.ts'

/** Which changes to read. */
export interface ChangeFilter {
  /** A decimal int64. */
  readonly petId?: string | undefined
  /** Only changes of the last seconds. */
  readonly since?: number | undefined
  /** The name of the API key or, for changes without a key, of the database role. */
  readonly by?: string | undefined
}

export type ChangeFormat = 'table' | 'csv' | 'json'

const TIME = `to_char(changed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The fields of a change in CSV and JSON. The names of the caller are those of the log. */
const FIELDS = `${TIME} AS time, pet_id AS "petId", old_quantity AS "oldQuantity", new_quantity AS "newQuantity",
  old_status AS "oldStatus", new_status AS "newStatus", key_name AS key, key_id AS "keyId", role, request_id AS "requestId"`

const CALLER = `coalesce(key_name || coalesce(' (' || key_id || ')', ''), 'role ' || role)`

/** The columns of the table for people: heading, width and SQL expression. Longer values are not cut. */
const tableColumns = [
  ['TIME', 24, TIME],
  ['PET ID', 10, "coalesce(pet_id::text, 'all')"],
  ['BEFORE', 16, "coalesce(old_quantity || ' ' || old_status, '-')"],
  ['AFTER', 16, "coalesce(new_quantity || ' ' || new_status, '-')"],
  ['BY', 24, CALLER],
  ['REQUEST', 0, "coalesce(request_id, '-')"],
] as const

/** The first line of a table. */
export const TABLE_HEADING = tableColumns.map(([heading, width]) => heading.padEnd(width)).join('  ')

const TABLE_LINE = tableColumns
  .map(([, width, value]) => `rpad(${value}, greatest(${width}, length(${value})))`)
  .join(` || '  ' || `)

/** Texts of `pg_current_snapshot()`, which show each transaction as a whole or not at all, however late it commits. */
export interface Snapshots {
  /** Absent for all changes of the filter, with the heading of CSV. */
  readonly former?: string
  readonly latest: string
}

/**
 * Returns the COPY statement that lists changes in lines of the format, newest first. With snapshots, it lists those that are visible
 * in the latest one, but not in the former, oldest first. The changes of one pet are in the order in which they were made, and TRUNCATE
 * is one of them.
 */
export function copyChanges(filter: ChangeFilter, format: ChangeFormat, snapshots?: Snapshots): string {
  const where = [...conditions(filter), ...(snapshots === undefined ? [] : visibleIn(snapshots))]
  const line = {
    table: TABLE_LINE,
    csv: FIELDS,
    json: `(SELECT row_to_json(change) FROM (SELECT ${FIELDS}) AS change)`,
  }
  const query = `SELECT ${line[format]} FROM inventory_history WHERE ${['true', ...where].join(' AND ')}
    ORDER BY statement_id ${snapshots === undefined ? 'DESC' : 'ASC'}`
  const hasHeading = snapshots?.former === undefined
  return format === 'csv' ? `COPY (${query}) TO STDOUT (FORMAT csv, HEADER ${hasHeading})` : copyLines(query)
}

function visibleIn({ former, latest }: Snapshots): string[] {
  const isIn = (snapshot: string): string =>
    `pg_visible_in_snapshot(transaction_id::text::xid8, ${pg.escapeLiteral(snapshot)})`
  if (former === undefined) return [isIn(latest)]
  const first = `pg_snapshot_xmin(${pg.escapeLiteral(former)})::text::bigint`
  return [isIn(latest), `NOT ${isIn(former)}`, `transaction_id >= ${first}`]
}

function conditions({ petId, since, by }: ChangeFilter): string[] {
  return [
    ...(petId === undefined ? [] : [`(pet_id = ${petId} OR pet_id IS NULL)`]),
    ...(since === undefined ? [] : [`changed_at >= now() - interval '${since} s'`]),
    ...(by === undefined ? [] : [`coalesce(key_name, role) = ${pg.escapeLiteral(by)}`]),
  ]
}
