import { execFileSync, spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'
import path from 'node:path'
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

/** Whether the account can execute a program or enter a folder, and enter all folders above it. */
export function canExecute(account: Account, target: string): boolean {
  if (account.uid === undefined) return true
  const { status } = spawnSync('sh', ['-c', 'test -x "$1"', 'sh', target], { ...account, cwd: '/' })
  return status === 0
}

/** Whether only root can replace a folder or one above it, so that root may change what is at a path in it. */
export function isOnlyOfRoot(folder: string): boolean {
  const { uid, mode } = statSync(folder)
  // In a sticky folder such as /tmp, users can replace only what is their own.
  const isOpen = (mode & 0o022) !== 0 && (mode & 0o1000) === 0
  const parent = path.dirname(folder)
  return uid === 0 && !isOpen && (parent === folder || isOnlyOfRoot(parent))
}
