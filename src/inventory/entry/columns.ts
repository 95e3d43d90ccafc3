import { type InventoryItem, petStatuses } from './schemas.ts'

/**
 * The types with which a list can be cached; the operator may have changed a column to another one of them. The text of a value
 * must depend on the value alone: the text of a `timestamptz` depends on a setting, and the labels of an enumeration can change.
 */
const columnTypes = ['bigint', 'integer', 'smallint', 'text', 'varchar'] as const

interface Definition {
  /** The name in the table `inventory`. */
  readonly column: string
  readonly type: (typeof columnTypes)[number]
  /**
   * The JSON text of the value, exactly as the response schema's serializer writes it, with an SQL expression in braces for the
   * variable part. Use `{to_json(column)}` for text that may contain quotes, backslashes or control characters.
   */
  readonly json: string
  /** SQL expression of the default value for a new entry. Absent if the value is required. */
  readonly initial?: string
  /** The allowed values, if the column is an enumeration. */
  readonly values?: readonly string[]
}

/** The column of each field of an entry, in the order of the response schema. `petId` is the primary key. */
const definitions = {
  petId: { column: 'pet_id', type: 'bigint', json: '{pet_id}' },
  quantity: { column: 'quantity', type: 'integer', json: '{quantity}' },
  status: {
    column: 'status',
    type: 'text',
    json: '"{status}"',
    initial: "'available'",
    values: petStatuses,
  },
} as const satisfies Record<keyof InventoryItem, Definition>

/** A field of an entry and the column that stores it. */
export interface Column extends Definition {
  readonly field: keyof InventoryItem
}

/** All columns of an entry, in the order of the response schema. */
export const columns: readonly Column[] = columnsOf(definitions)

/** All columns except the primary key. */
export const valueColumns: readonly Column[] = columns.filter(({ field }) => field !== 'petId')

/** The names of the columns, separated by commas. */
export const COLUMN_NAMES = columns.map(({ column }) => column).join(', ')

/** SQL expression of an array of `columnTypes`. */
export const COLUMN_TYPES = `'{${columnTypes.join()}}'::regtype[]`

/**
 * A select list of all columns, with the names of their fields as aliases. The casts have an effect only if the operator has changed
 * the type of a column, or stores the entries in another table under a view.
 */
export const ENTRY_FIELDS = 'pet_id::bigint AS "petId", quantity::integer AS quantity, status::text AS status'

/** SQL expression of an entry's JSON text, byte for byte as the response schema's serializer writes it. */
export const ENTRY_JSON = jsonText(columns)

/**
 * Returns a select list of all columns, with the names of their fields as aliases. The casts have an effect only if the operator
 * has changed the type of a column, or stores the entries in another table under a view.
 */
export function selectFields(table?: string): string {
  const prefix = table === undefined ? '' : `${table}.`
  return columns.map(({ column, type, field }) => `${prefix}${column}::${type} AS "${field}"`).join(', ')
}

/** Returns the SQL expression of the value to store. If `expression` is NULL, that is the default, if there is one. */
export function valueOrInitial(expression: string, { initial }: Column): string {
  return initial === undefined ? expression : `coalesce(${expression}, ${initial})`
}

function columnsOf<Field extends string>(
  all: Readonly<Record<Field, Definition>>,
): (Definition & { readonly field: Field })[] {
  const list: (Definition & { readonly field: Field })[] = []
  for (const field in all) list.push({ field, ...all[field] })
  return list
}

function jsonText(list: readonly Column[]): string {
  const members = list.map(({ field, json }) => `"${field}":${json.replace(/\{(.*)\}/, "' || $1 || '")}`)
  return `'{${members.join()}}'`
}
