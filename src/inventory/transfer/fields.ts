import type { IntegerOptions } from '@sinclair/typebox'
import { INT64_MAX, INT64_MIN } from '../../contract/int64.ts'
import { type Column, columns } from '../entry/columns.ts'
import { InventoryItem, MAX_QUANTITY } from '../entry/schemas.ts'
import { InvalidInputError } from './lines.ts'

const required = columns.filter(({ initial }) => initial === undefined)
const optional = columns.filter((column) => !required.includes(column))

const namesOf = (list: readonly Column[]): string => list.map(({ field }) => field).join(', ')

/** The columns of a file. */
export const FILE_COLUMNS = `${namesOf(required)} and optionally ${namesOf(optional)}`

/**
 * Returns the columns that the first line of a file names, in any order.
 *
 * @throws {InvalidInputError} if it does not
 */
export function readHeader(line: string): readonly Column[] {
  const names = line.replace(/"([^",]*)"(?=,|$)/g, '$1').split(',')
  const found = names.flatMap((name) => columns.find(({ field }) => field === name) ?? [])
  const hasRequired = required.every((column) => found.includes(column))
  if (hasRequired && found.length === names.length && new Set(found).size === names.length) return found
  const instead = line === '' ? 'but it is empty' : `not ${quote(line)}`
  // Spreadsheets write semicolons where the comma is the decimal separator.
  const advice = /[;\t]/.test(line) && !line.includes(',') ? '; separate the columns with commas' : ''
  const error = `the first line must name the columns: ${FILE_COLUMNS}, ${instead}${advice}`
  throw new InvalidInputError('has no header', [{ line: 1, error }])
}

/** Shows a text of a file, at most its beginning. */
export function quote(text: string): string {
  return text.length > 60 ? `${JSON.stringify(text.slice(0, 60))}…` : JSON.stringify(text)
}

/** How the text of a field is checked. */
interface FieldRule {
  /** Completes the sentence "FIELD must be …". */
  readonly expected: string
  /** Returns an SQL expression of the value in the type of its column; it is NULL for a text that is invalid or empty. */
  readonly value: (text: string) => string
}

/** Returns the rule of the API for a column. An integer has no notation but digits: `1.000` may mean a thousand, or one. */
export function ruleOf({ field, type, values }: Column): FieldRule {
  if (type === 'bigint') return integerRule(type, INT64_MIN, INT64_MAX)
  if (type === 'integer') {
    const { minimum = 0, maximum = MAX_QUANTITY }: IntegerOptions = InventoryItem.properties[field]
    return integerRule(type, minimum, maximum)
  }
  return {
    expected: values === undefined ? 'a text' : `one of ${values.join(', ')}`,
    value: (text) =>
      `CASE WHEN ${values === undefined ? `${text} <> ''` : `${text} = ANY ('{${values}}')`} THEN ${text} END`,
  }
}

/**
 * The conditions of CASE are evaluated in their order, so only digits are cast. Nearly all numbers are short, and always in range; to
 * cast them to numeric, or to count digits in the pattern, would take several times as long.
 */
function integerRule(type: string, minimum: bigint | number, maximum: bigint | number): FieldRule {
  // JSON has -0, too; a petId is not JSON.
  const pattern = minimum < 0 ? '^(0|-?[1-9][0-9]*)$' : '^(-?0|[1-9][0-9]*)$'
  return {
    expected: `an integer from ${minimum} to ${maximum}, in digits and without leading zeros`,
    value: (text) => `CASE WHEN ${text} !~ '${pattern}' OR length(${text}) > 20 THEN NULL
      WHEN length(${text}) < 10 OR ${text}::numeric BETWEEN ${minimum} AND ${maximum} THEN ${text}::${type} END`,
  }
}
