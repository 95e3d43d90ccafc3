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
 * Decodes UTF-8, or UTF-16 with a byte order mark, and yields the text with LF at the end of each line, where it may have CR LF or
 * CR. Invalid bytes become U+FFFD. Errors of `source` are thrown.
 *
 * @throws {InvalidInputError}
 */
export async function* readLines(source: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let decoder: TextDecoder | undefined
  let last = ''
  let length = 0
  for await (const chunk of source) {
    decoder ??= new TextDecoder(byteOrderMarks[chunk.toString('hex', 0, 2)])
    const decoded = decoder.decode(chunk, { stream: true })
    // The CR of this LF has ended the line, in the chunk before.
    const isRestOfEnd = last === '\r' && decoded.startsWith('\n')
    last = decoded.at(-1) ?? last
    const text = decoded.slice(isRestOfEnd ? 1 : 0).replace(/\r\n?/g, '\n')
    if (text.includes('\0'))
      throw new InvalidInputError(
        'has null characters; save it as text in UTF-8, or in UTF-16 with a byte order mark',
      )
    const end = text.lastIndexOf('\n')
    length = end === -1 ? length + text.length : text.length - end
    if (length > MAX_LINE_LENGTH)
      throw new InvalidInputError(`has a line of more than ${MAX_LINE_LENGTH} characters`)
    yield text
  }
  yield decoder?.decode() ?? ''
}
