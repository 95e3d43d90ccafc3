import type { IntegerOptions } from '@sinclair/typebox'
import { INT64_MAX, INT64_MIN, isInt64Text } from '../../contract/int64.ts'
import { type Column, columns } from '../entry/columns.ts'
import { InventoryItem, MAX_QUANTITY } from '../entry/schemas.ts'
import { InvalidInputError } from './lines.ts'

/** The columns of a file. */
export const FILE_COLUMNS = columns
  .map(({ field, initial }) => (initial === undefined ? field : `${field} (optional)`))
  .join(', ')

/** The command that counts the rows of a file as an import does, if it is in UTF-8 and its lines do not end in CR alone. */
export const COUNT_ROWS = "awk '/[^,\\r]/ { rows++ } END { print rows - 1 }'"

/** Returns the values of a line in the order of `columns`, empty for those that it does not have, or what is wrong with it. */
export type ReadRow = (line: string) => { readonly values: readonly string[] } | { readonly error: string }

/**
 * Returns a function that reads lines with the columns that the first line of a file names, in any order, by the rules of the API.
 *
 * @throws {InvalidInputError} if it does not name them
 */
export function rowReader(header: string): ReadRow {
  const names = split(header)
  const places = columns.map(({ field }) => names.indexOf(field))
  const isKnown = names.length === places.filter((place) => place !== -1).length
  const isComplete = columns.every(({ field, initial }) => initial !== undefined || names.includes(field))
  if (!isKnown || !isComplete) {
    const error = `the first line must name the columns, separated by commas: ${FILE_COLUMNS}, not ${quote(header)}`
    throw new InvalidInputError('has no header', [{ line: 1, error }])
  }
  const rules = columns.map(findRule)
  return (line) => {
    const texts = split(line)
    if (texts.length !== names.length)
      return { error: `there must be ${names.length} values, not ${texts.length}` }
    const values = places.map((place) => texts[place] ?? '')
    const wrong = rules.filter(({ accepts }, index) => !accepts(values[index] ?? ''))
    if (wrong.length === 0) return { values }
    const errors = wrong.map((rule) => `${rule.expected}, not ${quote(values[rules.indexOf(rule)] ?? '')}`)
    return { error: errors.join('; ') }
  }
}

/**
 * Splits a line. Values may be in quotes. A valid one has no quote, comma or end of a line in it, so a line that this splits at the
 * wrong place is a wrong one.
 */
function split(line: string): string[] {
  return (line.includes('"') ? line.replace(/(?<=^|,)"([^",]*)"(?=,|$)/g, '$1') : line).split(',')
}

/** Shows the beginning of a text of a file. */
function quote(text: string): string {
  return JSON.stringify(text.slice(0, 60))
}

/** Returns the rule of the API for a column. An integer has no notation but digits: `1.000` may mean a thousand, or one. */
function findRule({ field, type, values, initial }: Column) {
  const { minimum = 0, maximum = MAX_QUANTITY }: IntegerOptions = InventoryItem.properties[field]
  const [least, most] = type === 'bigint' ? [INT64_MIN, INT64_MAX] : [minimum, maximum]
  const isInRange = (text: string): boolean =>
    /^(0|-?[1-9][0-9]{0,9})$/.test(text) && least <= Number(text) && Number(text) <= most
  const isInteger = type === 'bigint' ? isInt64Text : isInRange
  const expected =
    values === undefined
      ? `an integer from ${least} to ${most}, in digits and without leading zeros`
      : `one of ${values.join(', ')}`
  return {
    /** What the text must be, as a sentence without its end. */
    expected: `${field} must be ${expected}`,
    accepts: (text: string): boolean =>
      text === '' ? initial !== undefined : (values?.includes(text) ?? isInteger(text)),
  }
}
