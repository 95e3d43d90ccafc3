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

/** The most characters that a line may have; none that is right has more than about 50. */
const LINE_LIMIT = 65_536

const BATCH = 1000

/**
 * Reads CSV (RFC 4180) in UTF-8 line by line, and yields some lines at a time. The first line names the columns, in any
 * order; empty lines are passed over. An error of `source` is raised.
 */
export async function* readCsv(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  const records = parse({
    bom: true,
    record_delimiter: ['\n', '\r\n'],
    relax_column_count: true,
    // A quote in the middle of a value makes that value wrong, not the rest of the file unreadable.
    relax_quotes: true,
    max_record_size: LINE_LIMIT,
    // Otherwise an error would discard the records before it that nobody has read yet.
    skip_records_with_error: true,
  })
  let good = Number.POSITIVE_INFINITY
  records.once('skip', () => {
    good = records.info.records
  })
  // A failure of the source reaches the loop below, because it ends the parser.
  pipeline(source, records, () => {})
  let columns: readonly ImportField[] | undefined
  let lines: ImportLine[] = []
  let number = 0
  let read = 0
  for await (const record of records) {
    if (read === good) break
    const values: string[] = record
    read += 1
    number += 1
    if (columns === undefined) {
      columns = readHeader(values)
      if (columns === undefined) {
        yield [{ number, fault: headerFault(values), endsReading: true }]
        return
      }
    } else if (values.length > 1 || values[0] !== '') {
      const line = readValues(number, columns, values)
      lines.push(line)
      // A line break in quotes is in no right value, so only here has a record more lines than one.
      if ('fault' in line) number += values.join('').split('\n').length - 1
      if (lines.length >= BATCH) {
        yield lines
        lines = []
      }
    }
  }
  if (good !== Number.POSITIVE_INFINITY) {
    lines.push({
      number: number + 1,
      fault: 'the line is too long or a quote in it is not closed; the rest was not read',
      endsReading: true,
    })
  } else if (columns === undefined) lines.push({ number: 1, fault: headerFault([]) })
  yield lines
}

function readHeader(names: readonly string[]): ImportField[] | undefined {
  const columns = names.flatMap((name) => importFields.find((field) => field === name) ?? [])
  const isComplete = requiredFields.every((field) => columns.includes(field))
  return isComplete && columns.length === names.length && new Set(columns).size === names.length
    ? columns
    : undefined
}

function headerFault(names: readonly string[]): string {
  const instead =
    names.length === 0 ? 'but the file is empty' : `not ${JSON.stringify(names.join(',').slice(0, 60))}`
  const expected = `${requiredFields.join(', ')} and optionally ${optionalFields.join(', ')}`
  return `the first line must name the columns: ${expected}, ${instead}`
}

function readValues(number: number, columns: readonly ImportField[], values: readonly string[]): ImportLine {
  if (values.length !== columns.length) {
    return { number, fault: `there must be ${columns.length} values, not ${values.length}` }
  }
  const textOf = (field: ImportField): string | undefined => values[columns.indexOf(field)]
  const givenText = (field: ImportField): string | undefined => textOf(field) || undefined
  return importLine(number, {
    number: givenText,
    text: givenText,
    show: (field) => JSON.stringify(textOf(field)),
  })
}
