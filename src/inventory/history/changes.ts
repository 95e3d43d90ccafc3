import pg from 'pg'
import { isoTime } from '../../database/iso-time.ts'
import type { TableShape } from '../../database/table-shape.ts'

/** The table of the changes, which an operator may partition, or whose older rows may be in tables that inherit from it. */
export const HISTORY_TABLE: TableShape = {
  name: 'inventory_history',
  columns: {
    statement_id: 'bigint NOT NULL',
    transaction_id: 'bigint NOT NULL',
    changed_at: 'timestamp with time zone NOT NULL',
    pet_id: 'bigint',
    old_quantity: 'integer',
    new_quantity: 'integer',
    old_status: 'text',
    new_status: 'text',
    key_name: 'text',
    key_id: 'text',
    role: 'text NOT NULL',
    request_id: 'text',
  },
}

/** Which changes to list. */
export interface ChangeFilter {
  /** A decimal integer. */
  readonly petId?: string | undefined
  /** Only changes of this interval of PostgreSQL before now. */
  readonly since?: string
  /** The name of the API key or of the database role. */
  readonly by?: string
}

const TIME = isoTime('change.changed_at')

/** The first line of the table for people. */
export const TABLE_HEADING =
  'TIME                      PET ID      BEFORE          AFTER           KEY                     ROLE                REQUEST'

/**
 * A line of the table for people. Longer values are not cut. A name may have a newline, which would begin a line; whoever shows the
 * line escapes the other control characters.
 */
const TABLE_LINE = `replace(format('%-24s  %-10s  %-14s  %-14s  %-22s  %-18s  %s', ${TIME}, coalesce(change.pet_id::text, 'all'),
  coalesce(change.old_quantity || ' ' || change.old_status, '-'), coalesce(change.new_quantity || ' ' || change.new_status, '-'),
  coalesce(change.key_name || coalesce(' (' || change.key_id || ')', ''), '-'), change.role,
  coalesce(change.request_id, '-')), E'\\n', '\\u000a')`

/** A change as a JSON object. The names of the caller are those of the log. */
const JSON_LINE = `(SELECT row_to_json(line.*) FROM (SELECT ${TIME} AS time, change.pet_id AS "petId",
  change.old_quantity AS "oldQuantity", change.new_quantity AS "newQuantity", change.old_status AS "oldStatus",
  change.new_status AS "newStatus", change.key_name AS key, change.key_id AS "keyId", change.role,
  change.request_id AS "requestId") AS line)`

/**
 * Returns the COPY statement that lists changes, one per line, newest first. The changes of one pet are in the order in which they
 * were made, and TRUNCATE is one of them. Lines come as they are: CSV quotes only a value that contains the delimiter, the quote or
 * the end of a line.
 */
export function copyChanges({ petId, since, by }: ChangeFilter, asJson: boolean): string {
  const conditions = [
    'true',
    petId !== undefined && `(change.pet_id = ${petId} OR change.pet_id IS NULL)`,
    by !== undefined && `${pg.escapeLiteral(by)} IN (change.key_name, change.role)`,
    since !== undefined && `change.changed_at >= now() - interval ${pg.escapeLiteral(since)}`,
  ].filter((condition) => condition !== false)
  return `COPY (
    SELECT ${asJson ? JSON_LINE : TABLE_LINE} FROM inventory_history AS change
    WHERE ${conditions.join(' AND ')} ORDER BY change.statement_id DESC
  ) TO STDOUT (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')`
}
