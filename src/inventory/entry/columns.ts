import type { TableShape } from '../../database/table-shape.ts'
import { type InventoryItem, petStatuses } from './schemas.ts'

/** A field of an entry and the column that stores it. */
export interface Column {
  readonly field: keyof InventoryItem
  /** The name in the table `inventory`. */
  readonly column: string
  readonly type: 'bigint' | 'integer' | 'text'
  /** SQL expression of the default value for a new entry. Absent if the value is required. */
  readonly initial?: string
  /** The allowed values, if the column is an enumeration. */
  readonly values?: readonly string[]
}

/** The column of each field. `petId` is the primary key. */
const byField: Readonly<Record<keyof InventoryItem, Column>> = {
  petId: { field: 'petId', column: 'pet_id', type: 'bigint' },
  quantity: { field: 'quantity', column: 'quantity', type: 'integer' },
  status: { field: 'status', column: 'status', type: 'text', initial: "'available'", values: petStatuses },
}

/** All columns of an entry, in the order of the response schema. */
export const columns: readonly Column[] = Object.values(byField)

/** All columns except the primary key. */
export const valueColumns: readonly Column[] = columns.filter(({ field }) => field !== 'petId')

/** The table of the entries. */
export const INVENTORY_TABLE: TableShape = {
  name: 'inventory',
  columns: Object.fromEntries(columns.map(({ column, type }) => [column, `${type} NOT NULL`])),
  key: byField.petId.column,
}

/** The names of the columns, separated by commas, for a list of columns to write. */
export const COLUMN_NAMES = columns.map(({ column }) => column).join(', ')

/**
 * A select list of all columns of `inventory AS entry`, with the names of their fields as aliases. Every statement qualifies its columns:
 * the table may have others, which an operator has added, with any name.
 */
export const ENTRY_FIELDS = columns.map(({ field, column }) => `entry.${column} AS "${field}"`).join(', ')

/**
 * SQL expression of the JSON text of an entry of `inventory AS entry`, byte for byte as the response schema's serializer writes it. A text that may contain
 * quotes, backslashes or control characters needs `to_json`.
 */
export const ENTRY_JSON = `'{"petId":' || entry.pet_id || ',"quantity":' || entry.quantity || ',"status":"' || entry.status || '"}'`
