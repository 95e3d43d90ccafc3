import { StringDecoder } from 'node:string_decoder'
import { isLosslessNumber, parse, stringify } from 'lossless-json'
import { type ImportLine, importFields, importLine } from './import-line.ts'

/** The most characters that a line may have; none that is right has more than about 80. */
const LINE_LIMIT = 65_536

/**
 * Reads JSON in UTF-8, an object a line, and yields some lines at a time; empty lines are passed over. An error of
 * `source` is raised.
 */
export async function* readNdjson(source: AsyncIterable<Buffer>): AsyncGenerator<ImportLine[]> {
  let number = 0
  for await (const texts of cutLines(source)) {
    const lines: ImportLine[] = []
    for (const text of texts) {
      number += 1
      if (text.length > LINE_LIMIT)
        lines.push({ number, fault: `the line is longer than ${LINE_LIMIT} characters` })
      else if (text.trim() !== '') lines.push(readObject(number, text))
    }
    yield lines
  }
}

/** Cuts text into lines. Of one above the limit only as much is kept as shows that it is. */
async function* cutLines(source: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new StringDecoder('utf8')
  let rest = ''
  for await (const chunk of source) {
    const lines = (rest + decoder.write(chunk)).split('\n')
    rest = (lines.pop() ?? '').slice(0, LINE_LIMIT + 1)
    yield lines
  }
  rest += decoder.end()
  if (rest !== '') yield [rest]
}

function readObject(number: number, text: string): ImportLine {
  let value: unknown
  try {
    value = parse(text)
  } catch {
    return { number, fault: 'the line is not valid JSON, or gives a field twice' }
  }
  if (!isObject(value)) return { number, fault: 'the line must be a JSON object' }
  const unknown = Object.keys(value).find((name) => !importFields.some((field) => field === name))
  if (unknown !== undefined) {
    return { number, fault: `the field ${JSON.stringify(unknown.slice(0, 60))} is not known` }
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

/** Text that is no valid Unicode would be stored as another one. */
function textOf(value: unknown): string | undefined | null {
  if (value === undefined) return undefined
  return typeof value === 'string' && !/\p{Surrogate}/u.test(value) ? value : null
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isLosslessNumber(value)
}
