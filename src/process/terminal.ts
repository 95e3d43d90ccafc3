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

/** Returns lines as a text. */
export function printableText(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join('')
}

/** Writes lines to standard error, for people. */
export function report(...lines: readonly string[]): void {
  process.stderr.write(printableText(lines))
}
