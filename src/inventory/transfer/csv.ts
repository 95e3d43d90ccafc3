import { pipeline } from 'node:stream'
import { parse } from 'csv-parse'
import {
  type ImportField,
  type ImportLine,
  importFields,
  importLine,
  optionalFields,
  requiredFields,
} from './import-line.ts'

/** Maximum characters of a line. A valid line has at most about 50. */
const MAX_LINE_LENGTH = 65_536

/** Maximum lines to yield at a time. */
const MAX_BATCH_SIZE = 1000

/**
 * Parses CSV (RFC 4180) in UTF-8, and yields batches of lines. The first line must have the names of the columns, in any order.
 * Empty lines are skipped. Errors of `source` are thrown.
 */
export async function* readCsv(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  const records = parse({
    bom: true,
    record_delimiter: ['\n', '\r\n'],
    relax_column_count: true,
    // A quote in the middle of a value makes only that value invalid, and not the rest of the file.
    relax_quotes: true,
    max_record_size: MAX_LINE_LENGTH,
    // Otherwise an error would discard the records before it that have not been read yet.
    skip_records_with_error: true,
  })
  let recordsBeforeError = Number.POSITIVE_INFINITY
  records.once('skip', () => {
    recordsBeforeError = records.info.records
  })
  // After an error, the parser would skip the rest of the input, which may have no end.
  async function* untilError(): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      yield chunk
      if (recordsBeforeError !== Number.POSITIVE_INFINITY) return
    }
  }
  // An error of the source destroys the parser, so that the loop below throws it.
  pipeline(untilError, records, () => {})
  let columns: readonly ImportField[] | undefined
  let lines: ImportLine[] = []
  let number = 0
  let read = 0
  for await (const record of records) {
    if (read === recordsBeforeError) break
    const values: string[] = record
    read += 1
    number += 1
    if (columns === undefined) {
      columns = readHeader(values)
      if (columns === undefined) {
        yield [{ number, error: headerError(values), endsReading: true }]
        return
      }
    } else if (values.length > 1 || values[0] !== '') {
      const line = readValues(number, columns, values)
      lines.push(line)
      // No valid value contains a line break, so only an invalid record can have several lines.
      if ('error' in line) number += values.join('').split('\n').length - 1
      if (lines.length >= MAX_BATCH_SIZE) {
        yield lines
        lines = []
      }
    }
  }
  if (recordsBeforeError !== Number.POSITIVE_INFINITY) {
    lines.push({
      number: number + 1,
      error: 'the line is too long or a quote in it is not closed; the rest was not read',
      endsReading: true,
    })
  } else if (columns === undefined) lines.push({ number: 1, error: headerError([]) })
  yield lines
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
  const textOf = (field: ImportField): string | undefined => values[columns.indexOf(field)]
  const givenText = (field: ImportField): string | undefined => textOf(field) || undefined
  return importLine(number, {
    number: givenText,
    text: givenText,
    show: (field) => JSON.stringify(textOf(field)),
  })
}
