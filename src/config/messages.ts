/** Returns the message of an error; any other thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Returns why a file cannot be read, without its name: an operator may have set the secret itself instead. */
export function readFailureOf(error: unknown): string {
  return messageOf(error).replace(/, .*/s, '')
}
