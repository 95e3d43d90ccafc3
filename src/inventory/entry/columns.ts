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

/** The names of the columns, separated by commas. */
export const COLUMN_NAMES = columns.map(({ column }) => column).join(', ')

/**
 * A select list of all columns, with the names of their fields as aliases. The casts have an effect only if the operator has changed
 * the type of a column, or stores the entries in another table under a view.
 */
export const ENTRY_FIELDS = 'pet_id::bigint AS "petId", quantity::integer AS quantity, status::text AS status'

/**
 * SQL expression of an entry's JSON text, byte for byte as the response schema's serializer writes it. A text that may contain
 * quotes, backslashes or control characters needs `to_json`.
 */
export const ENTRY_JSON = `'{"petId":' || pet_id || ',"quantity":' || quantity || ',"status":"' || status || '"}'`
