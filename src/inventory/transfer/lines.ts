/** Maximum characters of a line. A valid one has at most about 80. */
export const MAX_LINE_LENGTH = 65_536

/**
 * Decodes UTF-8 and splits it into lines, without newlines and a byte order mark at the beginning. Yields batches. A line that is
 * too long arrives as its beginning, as soon as that is longer than the limit. Errors of `source` are thrown.
 */
export async function* splitLines(source: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new TextDecoder()
  let rest = ''
  let isTooLong = false
  for await (const chunk of source) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    if (isTooLong && lines.length > 0) {
      lines.shift()
      isTooLong = false
    }
    if (isTooLong) rest = ''
    else if (rest.length > MAX_LINE_LENGTH) {
      lines.push(rest)
      rest = ''
      isTooLong = true
    }
    yield lines
  }
  rest += decoder.decode()
  if (rest !== '' && !isTooLong) yield [rest]
}
