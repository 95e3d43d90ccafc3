import {
  type ImportField,
  type ImportLine,
  importFields,
  importLine,
  optionalFields,
  requiredFields,
} from './import-line.ts'
import { MAX_LINE_LENGTH, splitLines } from './lines.ts'

/**
 * Parses CSV (RFC 4180) in UTF-8, and yields batches of lines. The first line must have the names of the columns, in any order.
 * Empty lines are skipped. Errors of `source` are thrown.
 */
export async function* readCsv(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  let columns: readonly ImportField[] | undefined
  /** The beginning of a record whose last value continues in the next line. */
  let open: string | undefined
  let linesBefore = 0
  let linesRead = 0
  for await (const texts of splitLines(source)) {
    const lines: ImportLine[] = []
    for (const text of texts) {
      linesRead += 1
      const record = open === undefined ? text : `${open}\n${text}`
      const values = record.length > MAX_LINE_LENGTH ? undefined : splitRecord(record)
      if (values === undefined) {
        open = record
        if (record.length <= MAX_LINE_LENGTH) continue
        yield [...lines, unreadable(linesBefore + 1)]
        return
      }
      open = undefined
      const number = linesBefore + 1
      linesBefore = linesRead
      if (columns === undefined) {
        columns = readHeader(values)
        if (columns === undefined) {
          yield [{ number, error: headerError(values), endsReading: true }]
          return
        }
      } else if (values.length > 1 || values[0] !== '') lines.push(readValues(number, columns, values))
    }
    yield lines
  }
  if (open !== undefined) yield [unreadable(linesBefore + 1)]
  else if (columns === undefined) yield [{ number: 1, error: headerError([]) }]
}

/** A value: the content of quotes, the closing quote, and what follows it; or everything up to the next comma. */
const VALUE = /"([^"]*(?:""[^"]*)*)("?)([^,]*)|[^,]*/y

/**
 * Splits a record into its values; undefined if the last one is quoted and continues in the next line. A quote in the middle of a
 * value makes only that value invalid, and not the rest of the file.
 */
function splitRecord(record: string): string[] | undefined {
  const text = record.endsWith('\r') ? record.slice(0, -1) : record
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

function unreadable(number: number): ImportLine {
  const error = 'the line is too long or a quote in it is not closed; the rest was not read'
  return { number, error, endsReading: true }
}

function readHeader(names: readonly string[]): ImportField[] | undefined {
  const columns = names.flatMap((name) => importFields.find((field) => field === name) ?? [])
  const isComplete = requiredFields.every((field) => columns.includes(field))
  return isComplete && columns.length === names.length && new Set(columns).size === names.length
    ? columns
    : undefined
}

function headerError(names: readonly string[]): string {
  const instead =
    names.length === 0 ? 'but the file is empty' : `not ${JSON.stringify(names.join(',').slice(0, 60))}`
  const expected = `${requiredFields.join(', ')} and optionally ${optionalFields.join(', ')}`
  // Excel writes semicolons where the comma is the decimal separator.
  const advice =
    names.length === 1 && /[;\t]/.test(names[0] ?? '') ? '; separate the columns with commas' : ''
  return `the first line must name the columns: ${expected}, ${instead}${advice}`
}

function readValues(number: number, columns: readonly ImportField[], values: readonly string[]): ImportLine {
  if (values.length !== columns.length) {
    return { number, error: `there must be ${columns.length} values, not ${values.length}` }
  }
  return importLine(
    number,
    (field) => values[columns.indexOf(field)] || undefined,
    (field) => JSON.stringify(values[columns.indexOf(field)]),
  )
}
