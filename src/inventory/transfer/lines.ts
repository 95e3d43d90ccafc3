import { TextDecoder } from 'node:util'

/** Maximum characters of a line. A valid one has at most about 80. */
const MAX_LINE_LENGTH = 65_536

/** The bytes at the beginning of UTF-16, which mark their order. UTF-8 needs no mark; the decoder drops it. */
const byteOrderMarks: Readonly<Record<string, string>> = { fffe: 'utf-16le', feff: 'utf-16be' }

/** A line that cannot be imported, counted from 1, and a message for the author of the file. */
export interface LineError {
  readonly line: number
  readonly error: string
}

/** An input cannot be imported. The message completes the sentence "FILE …". */
export class InvalidInputError extends Error {
  override readonly name = 'InvalidInputError'
  /** The first wrong lines. */
  readonly lines: readonly LineError[]

  constructor(message: string, lines: readonly LineError[] = []) {
    super(message)
    this.lines = lines
  }
}

/**
 * Decodes UTF-8, or UTF-16 with a byte order mark, and yields the lines of each chunk, which may end in LF, CR LF or CR. What is after
 * the last end of a line comes as the last one: an empty one if the input is whole. Invalid bytes become U+FFFD. Errors of
 * `source` are thrown.
 *
 * @throws {InvalidInputError}
 */
export async function* readLines(source: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  let decoder: TextDecoder | undefined
  /** What has come of the byte order mark: a pipe may bring its bytes one by one. */
  let start = Buffer.alloc(0)
  let rest = ''
  for await (const chunk of source) {
    if (decoder === undefined) start = Buffer.concat([start, chunk])
    if (start.length < 2) continue
    const bytes = decoder === undefined ? start : chunk
    decoder ??= new TextDecoder(byteOrderMarks[start.toString('hex', 0, 2)])
    const text = rest + decoder.decode(bytes, { stream: true })
    // A CR at the end may be the first half of CR LF.
    const lines = text.replace(/\r\n|\r(?!$)/g, '\n').split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > MAX_LINE_LENGTH)
      throw new InvalidInputError(`has a line of more than ${MAX_LINE_LENGTH} characters`)
    yield lines
  }
  yield (rest + (decoder?.decode() ?? start.toString())).split('\r')
}
