/**
 * SQL expression of a time as text, for `parseTime`. PostgreSQL's own text depends on the DateStyle of the session, and pg parses
 * only that in ISO format: it returns null for all others.
 */
export function timeText(time: string): string {
  return `(extract(epoch FROM ${time}) * 1000)::text`
}

/** Parses a time of `timeText`. */
export function parseTime(text: string): Date {
  return new Date(Number(text))
}

/** Parses a time of `timeText` that may be NULL. */
export function parseOptionalTime(text: string | null): Date | null {
  return text === null ? null : parseTime(text)
}
