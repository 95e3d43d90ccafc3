import { type InventoryItem, petStatuses } from './schemas.ts'

interface Definition {
  /** The name in the table `inventory`. */
  readonly column: string
  readonly type: 'bigint' | 'integer' | 'text'
  /**
   * The JSON text of the value, with the SQL expression that makes its variable part in braces: what the response schema's
   * serializer writes. Text that no constraint keeps free of quotes, backslashes and control characters takes
   * `{to_json(column)}`.
   */
  readonly json: string
  /** What a new entry gets where nothing is said, as an SQL expression. Absent where every entry has to name a value. */
  readonly initial?: string
  /** The only values that the column can have. */
  readonly values?: readonly string[]
}

/** How each field of an entry is stored, in the order of the response schema; petId comes first and is the key. */
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

/** Those that an entry has beside its petId. */
export const valueColumns: readonly Column[] = columns.filter(({ field }) => field !== 'petId')

type OptionalField = {
  [Field in keyof typeof definitions]: (typeof definitions)[Field] extends { initial: string } ? Field : never
}[keyof typeof definitions]

/** An entry to add; a field that has an initial value may be absent. */
export type NewItem = Omit<InventoryItem, OptionalField> & Partial<Pick<InventoryItem, OptionalField>>

/** The names of the columns, separated by commas. */
export const COLUMN_NAMES = columns.map(({ column }) => column).join(', ')

/** The SQL expression of an entry's JSON text, byte for byte what the response schema's serializer writes. */
export const ENTRY_JSON = jsonText(columns)

/** The columns of a table in a select list, each under the name of its field. */
export function selectFields(table?: string): string {
  const prefix = table === undefined ? '' : `${table}.`
  return columns
    .map(({ column, field }) => `${prefix}${column}${column === field ? '' : ` AS "${field}"`}`)
    .join(', ')
}

/** The SQL expression of what is stored for a value that may be absent (NULL). */
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
