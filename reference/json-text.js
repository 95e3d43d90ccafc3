/** A string, an empty object or array, the punctuation, or what is between them. */
const TOKEN = /"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\],:]|\s+/g

/**
 * Indents JSON text without parsing it, because `JSON.parse` rounds integers above 2^53: every number stays as it is.
 *
 * @param {string} text
 */
export function indent(text) {
  let depth = 0
  return text.replace(TOKEN, (token) => {
    if (/^[{[]$/.test(token)) depth += 1
    if (/^[}\]]$/.test(token)) depth -= 1
    const newLine = `\n${'  '.repeat(Math.max(depth, 0))}`
    if (/^[{[,]$/.test(token)) return token + newLine
    if (/^[}\]]$/.test(token)) return newLine + token
    return token === ':' ? ': ' : token.trim()
  })
}
