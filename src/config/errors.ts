/** The environment does not hold together. The message lists every error, a line each, without any secret. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError'

  constructor(errors: readonly string[]) {
    super(errors.join('\n'))
  }
}

export function errorsOf(load: () => unknown): string[] {
  try {
    load()
    return []
  } catch (error) {
    if (error instanceof ConfigurationError) return error.message.split('\n')
    throw error
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
