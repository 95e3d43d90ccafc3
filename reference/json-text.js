const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+)/y

/**
 * Indents JSON text without parsing it, because `JSON.parse` rounds integers above 2^53: every number stays as it is.
 * Stops after `maxItems` members of the outermost array or object. Returns undefined for text that cannot be JSON.
 *
 * @param {string} text
 * @param {number} maxItems
 */
export function indent(text, maxItems) {
  const lines = ['']
  let depth = 0
  let items = 0
  let previous = ''
  TOKEN.lastIndex = 0
  while (items < maxItems) {
    const start = TOKEN.lastIndex
    const match = TOKEN.exec(text)
    if (match === null) {
      if (text.slice(start).trim() !== '') return undefined
      break
    }
    const token = match[1] ?? ''
    const isClosing = token === '}' || token === ']'
    const isAfterOpening = previous === '{' || previous === '['
    if (isClosing) depth -= 1
    if (isClosing ? !isAfterOpening : isAfterOpening || previous === ',') lines.push('  '.repeat(depth))
    lines.push(`${lines.pop()}${token}${token === ':' ? ' ' : ''}`)
    if (token === '{' || token === '[') depth += 1
    if (token === ',' && depth === 1) items += 1
    previous = token
  }
  if (items === maxItems) lines.push('  …')
  return lines.join('\n')
}
