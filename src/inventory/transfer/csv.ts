import {
  type ImportField,
  type ImportLine,
  importFields,
  importLine,
  optionalFields,
  requiredFields,
} from './import-line.ts'
import { MAX_LINE_LENGTH, splitLines } from './lines.ts'
import { InvalidInputError } from './staging.ts'

/**
 * Parses CSV (RFC 4180) in UTF-8, and yields batches of lines. The first line must have the names of the columns, in any order.
 * Empty lines are skipped. No valid value contains a newline, so that each line is read on its own. Errors of `source` are thrown.
 *
 * @throws {InvalidInputError} if the first line does not name the columns
 */
export async function* readCsv(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  let columns: readonly ImportField[] | undefined
  let line = 0
  for await (const texts of splitLines(source)) {
    const lines: ImportLine[] = []
    for (const raw of texts) {
      const text = raw.endsWith('\r') ? raw.slice(0, -1) : raw
      line += 1
      if (columns === undefined) columns = readHeader(text)
      else if (text !== '') lines.push(readLine(line, columns, text))
    }
    yield lines
  }
  if (columns === undefined) readHeader('')
}

function readHeader(text: string): readonly ImportField[] {
  const names = splitValues(text) ?? []
  const columns = names.flatMap((name) => importFields.find((field) => field === name) ?? [])
  const isComplete = requiredFields.every((field) => columns.includes(field))
  if (isComplete && columns.length === names.length && new Set(columns).size === names.length) return columns
  const expected = `${requiredFields.join(', ')} and optionally ${optionalFields.join(', ')}`
  const instead = text === '' ? 'but it is empty' : `not ${JSON.stringify(text.slice(0, 60))}`
  // Excel writes semicolons where the comma is the decimal separator.
  const advice = /[;\t]/.test(text) && !text.includes(',') ? '; separate the columns with commas' : ''
  const error = `the first line must name the columns: ${expected}, ${instead}${advice}`
  throw new InvalidInputError({ first: [{ line: 1, error }], count: 1 })
}

function readLine(line: number, columns: readonly ImportField[], text: string): ImportLine {
  if (text.length > MAX_LINE_LENGTH)
    return { line, error: `the line is longer than ${MAX_LINE_LENGTH} characters` }
  const values = splitValues(text)
  if (values === undefined) return { line, error: 'a quote is not closed' }
  if (values.length !== columns.length)
    return { line, error: `there must be ${columns.length} values, not ${values.length}` }
  return importLine(
    line,
    (field) => values[columns.indexOf(field)] || undefined,
    (field) => JSON.stringify(values[columns.indexOf(field)]),
  )
}

/** A value: the content of quotes, the closing quote, and what follows it; or everything up to the next comma. */
const VALUE = /"([^"]*(?:""[^"]*)*)("?)([^,]*)|[^,]*/y

/**
 * Splits a line into its values; undefined if a quote is not closed. A quote in the middle of a value makes only that value
 * invalid.
 */
function splitValues(text: string): string[] | undefined {
  if (!text.includes('"')) return text.split(',')
  const values: string[] = []
  let comma = -1
  do {
    VALUE.lastIndex = comma + 1
    const [value = '', quoted, closingQuote, rest] = VALUE.exec(text) ?? []
    if (closingQuote === '') return undefined
    values.push(quoted === undefined || rest !== '' ? value : quoted.replaceAll('""', '"'))
    comma = VALUE.lastIndex
  } while (comma < text.length)
  return values
}
