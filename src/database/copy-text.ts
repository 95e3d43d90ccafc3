/**
 * Returns a COPY statement that sends the only column of a query as lines of text, exactly as it is, unless it has control
 * characters: CSV quotes only a value that contains the delimiter, the quote or the end of a line.
 */
export function copyLines(query: string): string {
  return `COPY (${query}) TO STDOUT (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')`
}
