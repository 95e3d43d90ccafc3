/** The configuration is invalid. The message has one line per error, and contains no secret. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError'
}

/** Returns the message of an error; any other thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Returns why a file cannot be read, without its name: an operator may have set the secret itself instead. */
export function readFailureOf(error: unknown): string {
  return messageOf(error).replace(/, .*/s, '')
}

/** The service or a command cannot start. The message is complete for the operator: what happened and what to do. */
export class StartUpError extends Error {
  override readonly name: string = 'StartUpError'
}
