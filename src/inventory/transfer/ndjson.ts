import { isLosslessNumber, parse, stringify } from 'lossless-json'
import { type ImportLine, importFields, importLine } from './import-line.ts'
import { MAX_LINE_LENGTH, splitLines } from './lines.ts'

/** Parses NDJSON in UTF-8, and yields batches of lines. Empty lines are skipped. Errors of `source` are thrown. */
export async function* readNdjson(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  let line = 0
  for await (const texts of splitLines(source)) {
    const lines: ImportLine[] = []
    for (const text of texts) {
      line += 1
      if (text.trim() !== '') lines.push(readObject(line, text))
    }
    yield lines
  }
}

function readObject(line: number, text: string): ImportLine {
  if (text.length > MAX_LINE_LENGTH)
    return { line, error: `the line is longer than ${MAX_LINE_LENGTH} characters` }
  let value: unknown
  try {
    value = parse(text)
  } catch {
    return { line, error: 'the line is not valid JSON, or gives a field twice' }
  }
  if (!isObject(value)) return { line, error: 'the line must be a JSON object' }
  const unknown = Object.keys(value).find((name) => !importFields.some((field) => field === name))
  if (unknown !== undefined) {
    return { line, error: `the field ${JSON.stringify(unknown.slice(0, 60))} is not known` }
  }
  return importLine(
    line,
    (field, isNumber) => (isNumber ? numberLiteral(value[field]) : textOf(value[field])),
    (field) => stringify(value[field]) ?? 'missing',
  )
}

function numberLiteral(value: unknown): string | undefined | null {
  if (value === undefined) return undefined
  return isLosslessNumber(value) ? value.value : null
}

/** Rejects text that is not valid Unicode, because PostgreSQL would store another text. */
function textOf(value: unknown): string | undefined | null {
  if (value === undefined) return undefined
  return typeof value === 'string' && !/\p{Surrogate}/u.test(value) ? value : null
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isLosslessNumber(value)
}
