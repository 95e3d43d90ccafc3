import { existsSync } from 'node:fs'

/** The environment, with the variables of a file `.env` in the working directory that it does not set itself. */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (existsSync('.env')) process.loadEnvFile('.env')
  return process.env
}
