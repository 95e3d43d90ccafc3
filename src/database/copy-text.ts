/** Escapes a value for COPY's text format (PostgreSQL manual, COPY, Text Format); undefined becomes NULL. */
export function toCopyText(value: string | undefined): string {
  if (value === undefined) return '\\N'
  return /[\\\n\r\t]/.test(value)
    ? value.replace(/[\\\n\r\t]/g, (character) => escapes[character] ?? '')
    : value
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/**
 * Returns a COPY statement that sends the only column of a query as lines of text, exactly as it is, unless it has control
 * characters: CSV quotes only a value that contains the delimiter, the quote or the end of a line.
 */
export function copyLines(query: string): string {
  return `COPY (${query}) TO STDOUT (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')`
}
