import { execFileSync, spawnSync } from 'node:child_process'
import { StartUpError } from '../config/errors.ts'

/** The user that a program runs as; without ids, the current user. */
export interface Account {
  readonly uid?: number
  readonly gid?: number
}

/**
 * Returns the account to run PostgreSQL as: the current user or, because PostgreSQL refuses to run as root, another user
 * instead of root.
 *
 * @throws {StartUpError} if the current user is root and there is no such account
 */
export function serverAccount(): Account {
  if (process.getuid?.() !== 0) return {}
  const idOf = (user: string, option: string): number =>
    Number(execFileSync('id', [option, user], { stdio: 'pipe' }))
  for (const user of ['postgres', 'nobody']) {
    try {
      return { uid: idOf(user, '-u'), gid: idOf(user, '-g') }
    } catch {
      // No such user; try the next one.
    }
  }
  throw new StartUpError(
    'PostgreSQL does not run as root, and this system has no user "postgres" or "nobody" to run it as.',
  )
}

/** Runs a program as an account, and returns whether it succeeds. */
export function succeedsAs(account: Account, program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { ...account, cwd: '/' }).status === 0
}
