import type { IntegerOptions } from '@sinclair/typebox'
import { INT64_MAX, INT64_MIN, isInt64Text, readNumber } from '../../contract/int64.ts'
import { type Column, columns } from '../entry/columns.ts'
import { InventoryItem, MAX_QUANTITY } from '../entry/schemas.ts'

/** An entry to import: the text of each column for PostgreSQL, undefined if the file has no value for it. */
export type ImportEntry = readonly (string | undefined)[]

/** A line of a file with its entry, or with the reason why it is invalid. */
export type ImportLine = { readonly line: number; readonly entry: ImportEntry } | LineError

export interface LineError {
  /** The number of the line in the file, counted from 1. */
  readonly line: number
  /** A message for the author of the file. */
  readonly error: string
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

/** The text of a value, or the literal of a number; undefined if the file has no value, null if it has another type. */
export type ImportValue = string | undefined | null

/** How the value of a field is checked. */
interface FieldRule {
  readonly field: ImportField
  readonly isRequired: boolean
  readonly isNumber: boolean
  /** Completes the sentence "FIELD must be …". */
  readonly expected: string
  /** Returns the text for PostgreSQL; undefined if the value is invalid. */
  readonly read: (value: string) => string | undefined
}

const rules: readonly FieldRule[] = columns.map((column) => ({
  field: column.field,
  isRequired: column.initial === undefined,
  ...ruleOf(column),
}))

/**
 * Checks the values of a line against the rules of the API.
 *
 * @param getValue returns the value of a field
 * @param show returns a value as written in the file, for a message
 */
export function importLine(
  line: number,
  getValue: (field: ImportField, isNumber: boolean) => ImportValue,
  show: (field: ImportField) => string,
): ImportLine {
  const entry: (string | undefined)[] = []
  const errors: string[] = []
  for (const { field, isRequired, isNumber, expected, read } of rules) {
    const value = getValue(field, isNumber)
    const text = typeof value === 'string' ? read(value) : undefined
    if (text !== undefined || (value === undefined && !isRequired)) {
      entry.push(text)
      continue
    }
    const shown = show(field)
    errors.push(`${field} must be ${expected}, not ${shown.length > 60 ? `${shown.slice(0, 60)}…` : shown}`)
  }
  return errors.length === 0 ? { line, entry } : { line, error: errors.join('; ') }
}

function ruleOf({ field, type, values: allowed }: Column): Omit<FieldRule, 'field' | 'isRequired'> {
  if (type === 'bigint') {
    return {
      isNumber: true,
      expected: `an integer from ${INT64_MIN} to ${INT64_MAX} in plain decimal`,
      read: (literal) => (isInt64Text(literal) ? literal : undefined),
    }
  }
  if (type === 'integer') {
    const { minimum = 0, maximum = MAX_QUANTITY }: IntegerOptions = InventoryItem.properties[field]
    return {
      isNumber: true,
      expected: `an integer from ${minimum} to ${maximum}`,
      read: (literal) => {
        const value = readInteger(literal)
        return value >= minimum && value <= maximum ? String(value) : undefined
      },
    }
  }
  return {
    isNumber: false,
    expected: allowed === undefined ? 'a text without null characters' : `one of ${allowed.join(', ')}`,
    read: (text) =>
      (allowed === undefined ? !text.includes('\0') : allowed.includes(text)) ? text : undefined,
  }
}

/** Parses a JSON number; NaN if it is not an integer. `1e2` is one, too. */
function readInteger(literal: string): number {
  // Nearly all numbers are plain, and need no checks for other notations.
  if (/^(0|[1-9]\d{0,8})$/.test(literal)) return Number(literal)
  const value = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(literal) ? readNumber(literal) : Number.NaN
  return Number.isInteger(value) ? value : Number.NaN
}
