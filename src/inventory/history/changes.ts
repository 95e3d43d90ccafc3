import pg from 'pg'
import { copyLines } from '../../database/copy-text.ts'

/** Which changes to list, and how. */
export interface ChangeList {
  /** A decimal int64. */
  readonly petId?: string | undefined
  /** Only changes of the last seconds. */
  readonly since?: number
  /** The name of the API key or, for changes without a key, of the database role. */
  readonly by?: string
  readonly format: 'table' | 'csv' | 'json'
  /** Whether to list later changes, too, and oldest first. */
  readonly follow?: true
}

const TIME = `to_char(changed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The fields of a change in CSV and JSON. The names of the caller are those of the log. */
const FIELDS = `${TIME} AS time, pet_id AS "petId", old_quantity AS "oldQuantity", new_quantity AS "newQuantity",
  old_status AS "oldStatus", new_status AS "newStatus", key_name AS key, key_id AS "keyId", role, request_id AS "requestId"`

/** The columns of the table for people: heading, width and SQL expression. Longer values are not cut. */
const tableColumns = [
  ['TIME', 24, TIME],
  ['PET ID', 10, "coalesce(pet_id::text, 'all')"],
  ['BEFORE', 16, "coalesce(old_quantity || ' ' || old_status, '-')"],
  ['AFTER', 16, "coalesce(new_quantity || ' ' || new_status, '-')"],
  ['BY', 24, "coalesce(key_name || coalesce(' (' || key_id || ')', ''), 'role ' || role)"],
  ['REQUEST', 0, "coalesce(request_id, '-')"],
] as const

/** The first line of a table. */
export const TABLE_HEADING = tableColumns.map(([heading, width]) => heading.padEnd(width)).join('  ')

const lines = {
  table: tableColumns
    .map(([, width, value]) => `rpad(${value}, greatest(${width}, length(${value})))`)
    .join(` || '  ' || `),
  csv: FIELDS,
  json: `(SELECT row_to_json(change) FROM (SELECT ${FIELDS}) AS change)`,
}

/**
 * Returns the COPY statement that lists changes in lines of the format, newest first. The changes of one pet are in the order in
 * which they were made, and TRUNCATE is one of them.
 *
 * @param former text of the `pg_current_snapshot()` in which they were not visible, if they are later ones
 */
export function copyChanges({ petId, since, by, format, follow }: ChangeList, former?: string): string {
  const snapshot = pg.escapeLiteral(former ?? '')
  const age = follow ? (since ?? 0) : since
  const conditions = [
    'true',
    petId !== undefined && `(pet_id = ${petId} OR pet_id IS NULL)`,
    by !== undefined && `coalesce(key_name, role) = ${pg.escapeLiteral(by)}`,
    former === undefined && age !== undefined && `changed_at >= now() - interval '${age} s'`,
    former !== undefined && `NOT pg_visible_in_snapshot(transaction_id::text::xid8, ${snapshot})`,
    former !== undefined && `transaction_id >= pg_snapshot_xmin(${snapshot})::text::bigint`,
  ].filter((condition) => condition !== false)
  const query = `SELECT ${lines[format]} FROM inventory_history
    WHERE ${conditions.join(' AND ')} ORDER BY statement_id ${follow ? 'ASC' : 'DESC'}`
  if (format !== 'csv') return copyLines(query)
  return `COPY (${query}) TO STDOUT (FORMAT csv, HEADER ${former === undefined})`
}
