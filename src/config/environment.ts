import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { ConfigurationError, readFailureOf } from './errors.ts'

export type Variables = Readonly<Record<string, string | undefined>>

/**
 * Returns the environment variables, plus those of `.env` in the working directory that are not set in the environment.
 *
 * @throws {ConfigurationError} if there is a `.env` that cannot be read
 */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (!existsSync('.env')) return process.env
  try {
    // Windows writes a byte order mark, which it removes, or UTF-16, in which no setting would be found.
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync('.env'))
    for (const [name, value] of Object.entries(parseEnv(text))) process.env[name] ??= value
    return process.env
  } catch (error) {
    throw new ConfigurationError([`.env must be a file that can be read: ${readFailureOf(error)}`])
  }
}

/**
 * Removes the variables of libpq, such as PGSSLMODE and PGOPTIONS, from the environment of this process and the programs that it
 * starts. pg and PostgreSQL's programs would apply them to every connection, also to that of the embedded server.
 */
export function removeLibpqVariables(): void {
  for (const name of Object.keys(process.env)) if (name.startsWith('PG')) delete process.env[name]
}
