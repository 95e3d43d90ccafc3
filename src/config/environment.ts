import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { describeReadFailure, OperatorError } from '../database/operator-error.ts'

export type Variables = Readonly<Record<string, string | undefined>>

/** A comment or a setting. A value in quotes may have several lines. */
const STATEMENT = /^[ \t]*(#|(export[ \t]+)?[\w.-]+[ \t]*=[ \t]*((["'`])[\s\S]*?\4)?).*$/gm

/**
 * Returns the environment variables, plus those of `.env` in the working directory that are not set.
 *
 * @throws {OperatorError} if `.env` cannot be read, or has a line that is neither a comment nor a setting
 */
export function readEnvironment(): NodeJS.ProcessEnv {
  if (!existsSync('.env')) return process.env
  const text = readText('.env', '.env')
  const rest = text.replace(STATEMENT, (statement) => statement.replace(/[^\n]+/g, '')).split('\n')
  // The message has only its number: its text may be a secret.
  const wrong = [...rest.entries()].filter(([, line]) => line.trim() !== '').map(([index]) => index + 1)
  if (wrong.length > 0)
    throw new OperatorError(
      `.env must have NAME=value on each line, such as PORT=3001; see line ${wrong.join(', ')}`,
    )
  // On Node 20, blanks before a comment or on an empty line would become part of the next name.
  const statements = Array.from(text.matchAll(STATEMENT), ([statement]) =>
    statement.replace(/^[ \t]*(export[ \t]+)?/, ''),
  )
  for (const [name, value] of Object.entries(parseEnv(statements.join('\n')))) process.env[name] ??= value
  return process.env
}

/** Returns the text of a file. Throws an OperatorError with the `name` of its setting if it cannot be read. */
export function readText(path: string, name: string): string {
  try {
    // Windows writes a byte order mark, which it removes, or UTF-16, in which no setting would be found.
    return new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(path))
  } catch (error) {
    throw new OperatorError(`${name} cannot be read: ${describeReadFailure(error)}`)
  }
}

/** The environment of a program that needs no variable of ours, which may be secrets. */
export function bareEnvironment(): NodeJS.ProcessEnv {
  // Without a locale, the one of macOS starts threads in PostgreSQL, which then refuses to run.
  return { PATH: process.env['PATH'], LC_ALL: 'C' }
}

/** Whether nobody watches the terminal, or it cannot write a line again. */
export function isUnattended(): boolean {
  return Boolean(process.env['CI']) || process.env['TERM'] === 'dumb'
}
