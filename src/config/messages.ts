/** Returns the message of an error; any other thrown value as text. If a host has several addresses, the error has one for each. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return messageOf(error.errors[0])
  return error instanceof Error ? error.message : String(error)
}

/** Returns why a file cannot be read, without its name, which may be the secret itself. */
export function readFailureOf(error: unknown): string {
  return messageOf(error).replace(/, .*/s, '')
}
