import { readFileSync } from 'node:fs'
import { readFailureOf } from './errors.ts'
import type { Variables } from './variables.ts'

/**
 * Returns the variables, with each secret read from the file in `NAME_FILE` if that is set. Docker and Kubernetes mount secrets
 * as files.
 *
 * @param errors receives a message for each file that cannot be used
 */
export function withSecretFiles(env: Variables, secretNames: readonly string[], errors: string[]): Variables {
  const complete: Record<string, string | undefined> = { ...env }
  for (const name of secretNames) {
    const file = env[`${name}_FILE`]
    if (!file) continue
    if (env[name]) errors.push(`${name} and ${name}_FILE must not both be set`)
    try {
      complete[name] = readFileSync(file, 'utf8').trim()
      if (complete[name] === '')
        errors.push(`${name}_FILE must be a file with a value in it, not ${JSON.stringify(file)}`)
    } catch (error) {
      errors.push(`${name}_FILE must be a file that can be read: ${readFailureOf(error, file)}`)
    }
  }
  return complete
}

/** Whether a variable is set, directly or with `NAME_FILE`. The file may be unreadable. */
export function isSet(env: Variables, name: string): boolean {
  return Boolean(env[name]?.trim() || env[`${name}_FILE`])
}
