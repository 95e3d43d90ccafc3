import type { IntegerOptions } from '@sinclair/typebox'
import { INT64_MAX, INT64_MIN, isInt64Text, readNumber } from '../../contract/int64.ts'
import { type Column, columns } from '../columns.ts'
import { InventoryItem, MAX_QUANTITY } from '../schemas.ts'

/** An entry to import: the text of each column for PostgreSQL, undefined if the file has no value for it. */
export type ImportEntry = readonly (string | undefined)[]

/** A line of a file with its entry, or with the reason why it is invalid. */
export type ImportLine = { readonly number: number; readonly entry: ImportEntry } | InvalidLine

export interface InvalidLine {
  /** The number of the line in the file, counted from 1. */
  readonly number: number
  /** A message for the author of the file. */
  readonly error: string
  /** True if the lines after this one were not read, so that their number is unknown. */
  readonly endsReading?: true
}

export type ImportField = Column['field']

/** Every field that a file can have. */
export const importFields: readonly ImportField[] = columns.map(({ field }) => field)

/** The fields without which a file cannot be imported. */
export const requiredFields: readonly ImportField[] = columns
  .filter(({ initial }) => initial === undefined)
  .map(({ field }) => field)

/** The fields that a file may omit. */
export const optionalFields: readonly ImportField[] = importFields.filter(
  (field) => !requiredFields.includes(field),
)

/** The values of one line. */
export interface LineValues {
  /** Returns the literal of a number; undefined if the file has no value, null if the value is not a number. */
  number(field: ImportField): string | undefined | null
  /** Returns a text; undefined if the file has no value, null if the value is not a text. */
  text(field: ImportField): string | undefined | null
  /** Returns a value as written in the file, for a message. */
  show(field: ImportField): string
}

/** Parses and validates the value of a field. */
interface FieldReader {
  readonly field: ImportField
  readonly isRequired: boolean
  /** Completes the sentence "FIELD must be …". */
  readonly expected: string
  /** Returns the value as text for PostgreSQL; undefined if it is missing, null if it is invalid. */
  readonly read: (values: LineValues) => string | undefined | null
}

const readers: readonly FieldReader[] = columns.map((column) => ({
  field: column.field,
  isRequired: column.initial === undefined,
  ...readerOf(column),
}))

/** Validates the values of a line against the rules of the API. */
export function importLine(number: number, values: LineValues): ImportLine {
  const entry: (string | undefined)[] = []
  const errors: string[] = []
  for (const { field, isRequired, expected, read } of readers) {
    const value = read(values)
    if (value === null || (value === undefined && isRequired)) {
      const text = values.show(field)
      const shown = text.length > 60 ? `${text.slice(0, 60)}…` : text
      errors.push(`${field} must be ${expected}, not ${shown}`)
    } else {
      entry.push(value)
    }
  }
  return errors.length === 0 ? { number, entry } : { number, error: errors.join('; ') }
}

function readerOf({ field, type, values: allowed }: Column): Pick<FieldReader, 'expected' | 'read'> {
  if (type === 'bigint') {
    return {
      expected: `an integer from ${INT64_MIN} to ${INT64_MAX} in plain decimal`,
      read: (values) => {
        const literal = values.number(field)
        return typeof literal === 'string' && !isInt64Text(literal) ? null : literal
      },
    }
  }
  if (type === 'integer') {
    const { minimum = 0, maximum = MAX_QUANTITY }: IntegerOptions = InventoryItem.properties[field]
    return {
      expected: `an integer from ${minimum} to ${maximum}`,
      read: (values) => readInteger(values.number(field), { minimum, maximum }),
    }
  }
  const isAllowed = (text: string): boolean =>
    allowed === undefined ? !text.includes('\0') : allowed.includes(text)
  return {
    expected: allowed === undefined ? 'a text without null characters' : `one of ${allowed.join(', ')}`,
    read: (values) => {
      const text = values.text(field)
      return typeof text === 'string' && !isAllowed(text) ? null : text
    },
  }
}

interface Bounds {
  readonly minimum: number
  readonly maximum: number
}

/** Converts a JSON number to a decimal integer; null if it is not an integer within the bounds. `1e2` is valid, too. */
function readInteger(
  literal: string | undefined | null,
  { minimum, maximum }: Bounds,
): string | undefined | null {
  if (typeof literal !== 'string') return literal
  // Nearly all numbers are plain, and need no checks for other notations.
  const isPlain = /^(0|[1-9]\d{0,8})$/.test(literal)
  if (!isPlain && !/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(literal)) return null
  const value = isPlain ? Number(literal) : readNumber(literal)
  return Number.isInteger(value) && value >= minimum && value <= maximum ? String(value) : null
}
