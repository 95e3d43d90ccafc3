import { existsSync } from 'node:fs'

/** Returns the environment variables, plus those of `.env` in the working directory that are not set in the environment. */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (existsSync('.env')) process.loadEnvFile('.env')
  return process.env
}
