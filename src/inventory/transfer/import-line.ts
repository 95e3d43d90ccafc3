import type { IntegerOptions } from '@sinclair/typebox'
import { INT64_MAX, INT64_MIN, isInt64Text, readNumber } from '../../contract/int64.ts'
import { type Column, columns } from '../columns.ts'
import { InventoryItem, MAX_QUANTITY } from '../schemas.ts'

/** An entry to import: for each column its text as PostgreSQL reads it, undefined where the file leaves it open. */
export type ImportEntry = readonly (string | undefined)[]

/** A line of a file, counted from 1, and the entry it holds, or what is wrong with it in words for its author. */
export type ImportLine = { readonly number: number; readonly entry: ImportEntry } | FaultyLine

export interface FaultyLine {
  readonly number: number
  readonly fault: string
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

/** Those that a file may leave out. */
export const optionalFields: readonly ImportField[] = importFields.filter(
  (field) => !requiredFields.includes(field),
)

/** The values of one line. */
export interface LineValues {
  /** The literal of a number; undefined where the file leaves the value open, null where it has something else. */
  number(field: ImportField): string | undefined | null
  /** A text; undefined where the file leaves the value open, null where it has something else. */
  text(field: ImportField): string | undefined | null
  /** A value as the file has it, for a message. */
  show(field: ImportField): string
}

/** How the value of a field is read and what it must be. */
interface FieldReader {
  readonly field: ImportField
  readonly isRequired: boolean
  /** In words that follow "must be". */
  readonly expected: string
  /** The value as PostgreSQL reads it; undefined if it is missing, null if it is wrong. */
  readonly read: (values: LineValues) => string | undefined | null
}

const readers: readonly FieldReader[] = columns.map((column) => ({
  field: column.field,
  isRequired: column.initial === undefined,
  ...readerOf(column),
}))

/** Holds the values of a line to the rules of the interface. */
export function importLine(number: number, values: LineValues): ImportLine {
  const entry: (string | undefined)[] = []
  const faults: string[] = []
  for (const { field, isRequired, expected, read } of readers) {
    const value = read(values)
    if (value === null || (value === undefined && isRequired)) {
      const text = values.show(field)
      const shown = text.length > 60 ? `${text.slice(0, 60)}…` : text
      faults.push(`${field} must be ${expected}, not ${shown}`)
    } else {
      entry.push(value)
    }
  }
  return faults.length === 0 ? { number, entry } : { number, fault: faults.join('; ') }
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

/** The integer that a JSON number stands for, which need not be written as one; null for anything else. */
function readInteger(
  literal: string | undefined | null,
  { minimum, maximum }: Bounds,
): string | undefined | null {
  if (typeof literal !== 'string') return literal
  // What nearly every line has needs none of the checks for other notations.
  const isPlain = /^(0|[1-9]\d{0,8})$/.test(literal)
  if (!isPlain && !/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(literal)) return null
  const value = isPlain ? Number(literal) : readNumber(literal)
  return Number.isInteger(value) && value >= minimum && value <= maximum ? String(value) : null
}
