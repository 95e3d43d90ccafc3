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

/**
 * Returns the COPY statement that lists changes, newest first, in lines of the format. The
 * changes of one pet are in the order in which they were made, and TRUNCATE is one of them.
 */
export function copyChanges(filter: ChangeFilter, format: ChangeFormat): string {
  return copyText(conditions(filter), 'DESC', format, format === 'csv')
}

/**
 * Returns the COPY statement that lists the changes that are visible in the snapshot `latest`, but not in `former`, oldest first.
 * Snapshots are texts of `pg_current_snapshot()`, which show a transaction as a whole or not at all, however late it commits.
 * Without `former`, it lists the changes of the time `since`, none by default, below the heading of CSV.
 */
export function copyNewChanges(
  filter: ChangeFilter,
  format: ChangeFormat,
  former: string | undefined,
  latest: string,
): string {
  const isIn = (snapshot: string): string =>
    `pg_visible_in_snapshot(transaction_id::text::xid8, ${pg.escapeLiteral(snapshot)})`
  const where =
    former === undefined
      ? conditions({ ...filter, since: filter.since ?? 0 })
      : [
          ...conditions({ ...filter, since: undefined }),
          `transaction_id >= pg_snapshot_xmin(${pg.escapeLiteral(former)})::text::bigint`,
          `NOT ${isIn(former)}`,
        ]
  return copyText([...where, isIn(latest)], 'ASC', format, former === undefined)
}

function conditions({ petId, since, by }: ChangeFilter): string[] {
  return [
    ...(petId === undefined ? [] : [`(pet_id = ${petId} OR pet_id IS NULL)`]),
    ...(since === undefined ? [] : [`changed_at >= now() - interval '${since} s'`]),
    ...(by === undefined ? [] : [`coalesce(key_name, role) = ${pg.escapeLiteral(by)}`]),
  ]
}

function copyText(where: string[], order: 'ASC' | 'DESC', format: ChangeFormat, hasHeader: boolean): string {
  const line = {
    table: TABLE_LINE,
    csv: FIELDS,
    json: `(SELECT row_to_json(change) FROM (SELECT ${FIELDS}) AS change)`,
  }
  const query = `SELECT ${line[format]} FROM inventory_history WHERE ${['true', ...where].join(' AND ')} ORDER BY statement_id ${order}`
  return format === 'csv' ? `COPY (${query}) TO STDOUT (FORMAT csv, HEADER ${hasHeader})` : copyLines(query)
}
