/**
 * Control and format characters, such as those that reverse the direction of text, line separators, spaces other than the plain one,
 * unpaired surrogates, and whatever else has no width.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu

/**
 * Returns a line with each character that a terminal would obey, or not show, as an escape of JSON, such as `\u001b`, so that JSON keeps
 * its value. Every line for people passes through it where it is printed, because parts of it are other people's text: of a file, a name
 * in the database, a message of PostgreSQL.
 */
export function printable(line: string): string {
  return line.replace(UNPRINTABLE, (character) =>
    Array.from({ length: character.length }, (_, index) => {
      const unit = character.charCodeAt(index).toString(16)
      return `\\u${unit.padStart(4, '0')}`
    }).join(''),
  )
}

/** The terminal's command to erase from the cursor to the end of the line. */
const ERASE_TO_END = '\u001b[K'

/** Returns lines as a text. */
export function printableText(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join('')
}

let hasStatus = false

/** Writes a line for people to the terminal of standard error, in the place of the one before, until it is erased. */
export function drawStatus(line: string): void {
  // A line that wraps could not be written again.
  const width = (process.stderr.columns || 80) - 1
  process.stderr.write(`\r${printable(line).slice(0, width)}${ERASE_TO_END}`)
  hasStatus = true
}

/** Erases what `drawStatus` has written. */
export function eraseStatus(): void {
  if (hasStatus) process.stderr.write(`\r${ERASE_TO_END}`)
  hasStatus = false
}

/** Writes lines to standard error, for people. */
export function report(...lines: readonly string[]): void {
  eraseStatus()
  process.stderr.write(printableText(lines))
}
