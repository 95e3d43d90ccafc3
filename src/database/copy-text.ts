const BACKSLASH = 0x5c

/** Writes a value as COPY reads it (PostgreSQL manual, COPY, Text Format); undefined is NULL. */
export function toCopyText(value: string | undefined): string {
  if (value === undefined) return '\\N'
  return /[\\\n\r\t]/.test(value)
    ? value.replace(/[\\\n\r\t]/g, (character) => escapes[character] ?? '')
    : value
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/**
 * Returns a function that takes the output of one COPY in pieces of any length and makes single backslashes of double ones.
 * Text without control characters, as JSON is, has no other escape in that format. Pieces are changed in place.
 */
export function copyOutputReader(): (piece: Buffer) => Buffer {
  let isSecond = false
  return (piece) => {
    if (!isSecond && !piece.includes(BACKSLASH)) return piece
    let used = 0
    for (const byte of piece) {
      if (byte === BACKSLASH) isSecond = !isSecond
      if (byte !== BACKSLASH || !isSecond) piece[used++] = byte
    }
    return piece.subarray(0, used)
  }
}
