/**
 * Control and format characters, such as those that reverse the direction of text, line separators, spaces other than the plain one,
 * unpaired surrogates, and whatever else has no width.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu

/**
 * Returns a text with each character that a terminal would obey, or not show, as an escape of JSON, such as `\u001b`, so that JSON keeps
 * its value. For every text that is not ours: of a file, a name in the database, a message of PostgreSQL.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) =>
    Array.from({ length: character.length }, (_, index) => {
      const unit = character.charCodeAt(index).toString(16)
      return `\\u${unit.padStart(4, '0')}`
    }).join(''),
  )
}

/** As `printable`, but keeps the ends of lines, for a text of several lines whose parts from elsewhere are printable already. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n')
}
