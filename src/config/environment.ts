import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { ConfigurationError, messageOf } from './errors.ts'

/**
 * Returns the environment variables, plus those of `.env` in the working directory that are not set in the environment.
 *
 * @throws {ConfigurationError} if there is a `.env` that cannot be read
 */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (!existsSync('.env')) return process.env
  for (const [name, value] of Object.entries(parseEnv(readDotEnv()))) process.env[name] ??= value
  return process.env
}

/** Reads `.env`, without the byte order mark that editors on Windows write: it would become a part of the first name. */
function readDotEnv(): string {
  try {
    return readFileSync('.env', 'utf8').replace(/^\uFEFF/, '')
  } catch (error) {
    throw new ConfigurationError([`.env must be a file that can be read: ${messageOf(error)}`])
  }
}
