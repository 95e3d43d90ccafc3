import { StringDecoder } from 'node:string_decoder'
import { isLosslessNumber, parse, stringify } from 'lossless-json'
import { type ImportLine, importFields, importLine } from './import-line.ts'

/** Maximum characters of a line. A valid line has at most about 80. */
const MAX_LINE_LENGTH = 65_536

/**
 * Parses NDJSON in UTF-8, and yields batches of lines. Empty lines and a byte order mark at the beginning are skipped. Errors of
 * `source` are thrown.
 */
export async function* readNdjson(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  let number = 0
  for await (const texts of splitLines(source)) {
    const lines: ImportLine[] = []
    for (const text of texts) {
      number += 1
      if (text.length > MAX_LINE_LENGTH)
        lines.push({ number, error: `the line is longer than ${MAX_LINE_LENGTH} characters` })
      else if (text.trim() !== '') lines.push(readObject(number, number === 1 ? withoutMark(text) : text))
    }
    yield lines
  }
}

/** Splits text into lines. Of a line that is too long, keeps one character more than the limit. */
async function* splitLines(source: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new StringDecoder('utf8')
  let rest = ''
  for await (const chunk of source) {
    const lines = (rest + decoder.write(chunk)).split('\n')
    rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH + 1)
    yield lines
  }
  rest += decoder.end()
  if (rest !== '') yield [rest]
}

function withoutMark(text: string): string {
  return text.replace(/^\uFEFF/, '')
}

function readObject(number: number, text: string): ImportLine {
  let value: unknown
  try {
    value = parse(text)
  } catch {
    return { number, error: 'the line is not valid JSON, or gives a field twice' }
  }
  if (!isObject(value)) return { number, error: 'the line must be a JSON object' }
  const unknown = Object.keys(value).find((name) => !importFields.some((field) => field === name))
  if (unknown !== undefined) {
    return { number, error: `the field ${JSON.stringify(unknown.slice(0, 60))} is not known` }
  }
  return importLine(number, {
    number: (field) => numberLiteral(value[field]),
    text: (field) => textOf(value[field]),
    show: (field) => stringify(value[field]) ?? 'missing',
  })
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
