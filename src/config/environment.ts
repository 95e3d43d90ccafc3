import { existsSync, readFileSync } from 'node:fs'
import { ConfigurationError, messageOf } from './errors.ts'

/**
 * Returns the environment variables, plus those of `.env` in the working directory that are not set in the environment.
 *
 * @throws {ConfigurationError} if there is a `.env` that cannot be read
 */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (!existsSync('.env')) return process.env
  try {
    // loadEnvFile says that an unreadable file does not exist, and of a folder that its contents are no string.
    readFileSync('.env')
  } catch (error) {
    throw new ConfigurationError([`.env must be a file that can be read: ${messageOf(error)}`])
  }
  process.loadEnvFile('.env')
  return process.env
}
