import pg from 'pg'
import { copyLines } from '../../database/copy-text.ts'
import { isoTime } from '../../database/time.ts'

/** Which changes to list, and how. */
export interface ChangeList {
  /** A decimal int64. */
  readonly petId?: string | undefined
  /** Only changes of the last seconds. */
  readonly since?: number
  /** The name of the API key or of the database role. */
  readonly by?: string
  readonly format: 'table' | 'csv' | 'json'
}

const TIME = isoTime('changed_at')

/** The fields of a change in CSV and JSON. The names of the caller are those of the log. */
const FIELDS = `${TIME} AS time, pet_id AS "petId", old_quantity AS "oldQuantity", new_quantity AS "newQuantity",
  old_status AS "oldStatus", new_status AS "newStatus", key_name AS key, key_id AS "keyId", role, request_id AS "requestId"`

/** The columns of the table for people: heading, width and SQL expression. Longer values are not cut. */
const tableColumns = [
  ['TIME', 24, TIME],
  ['PET ID', 10, "coalesce(pet_id::text, 'all')"],
  ['BEFORE', 14, "coalesce(old_quantity || ' ' || old_status, '-')"],
  ['AFTER', 14, "coalesce(new_quantity || ' ' || new_status, '-')"],
  ['KEY', 22, "coalesce(key_name || coalesce(' (' || key_id || ')', ''), '-')"],
  ['ROLE', 18, 'role'],
  ['REQUEST', 0, "coalesce(request_id, '-')"],
] as const

/** The first line of a table. */
export const TABLE_HEADING = tableColumns.map(([heading, width]) => heading.padEnd(width)).join('  ')

const TABLE_LINE = tableColumns
  .map(([, width, value]) => `rpad(${value}, greatest(${width}, length(${value})))`)
  .join(` || '  ' || `)

const lines = {
  // A row is one line; whoever shows it escapes the other control characters.
  table: `replace(${TABLE_LINE}, E'\\n', '\\u000a')`,
  csv: FIELDS,
  json: `(SELECT row_to_json(change) FROM (SELECT ${FIELDS}) AS change)`,
}

/**
 * Returns the COPY statement that lists changes in lines of the format, newest first. The changes of one pet are in the order in
 * which they were made, and TRUNCATE is one of them.
 */
export function copyChanges({ petId, since, by, format }: ChangeList): string {
  const conditions = [
    'true',
    petId !== undefined && `(pet_id = ${petId} OR pet_id IS NULL)`,
    by !== undefined && `${pg.escapeLiteral(by)} IN (key_name, role)`,
    since !== undefined && `changed_at >= now() - interval '${since} s'`,
  ].filter((condition) => condition !== false)
  const query = `SELECT ${lines[format]} FROM inventory_history
    WHERE ${conditions.join(' AND ')} ORDER BY statement_id DESC`
  return format === 'csv' ? `COPY (${query}) TO STDOUT (FORMAT csv, HEADER)` : copyLines(query)
}
