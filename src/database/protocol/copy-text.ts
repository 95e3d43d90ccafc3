const BACKSLASH = 0x5c

/** Escapes a value for COPY's text format (PostgreSQL manual, COPY, Text Format); undefined becomes NULL. */
export function toCopyText(value: string | undefined): string {
  if (value === undefined) return '\\N'
  return /[\\\n\r\t]/.test(value)
    ? value.replace(/[\\\n\r\t]/g, (character) => escapes[character] ?? '')
    : value
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/**
 * Returns a function that takes the output of one COPY in chunks of any size, and replaces double backslashes by single ones.
 * Text without control characters, such as JSON, has no other escapes in COPY's text format. Chunks are changed in place.
 */
export function copyOutputReader(): (chunk: Buffer) => Buffer {
  let isEscaped = false
  return (chunk) => {
    if (!chunk.includes(BACKSLASH)) return chunk
    let length = 0
    for (const byte of chunk) {
      if (byte === BACKSLASH) isEscaped = !isEscaped
      if (byte !== BACKSLASH || !isEscaped) chunk[length++] = byte
    }
    return chunk.subarray(0, length)
  }
}
