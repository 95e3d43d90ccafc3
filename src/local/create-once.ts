import { existsSync } from 'node:fs'
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises'

/** Names are temporary while they are created, so that an interrupted creation never looks complete. */
function temporaryName(target: string): string {
  return `${target}.unfinished-${process.pid}`
}

/**
 * Creates a folder unless it exists; `fill` creates it under a temporary name. If several processes create it at once, the first
 * one to finish wins, and the others use its folder.
 */
export async function createFolderOnce(
  target: string,
  fill: (temporary: string) => Promise<unknown>,
): Promise<void> {
  if (existsSync(target)) return
  const temporary = temporaryName(target)
  await rm(temporary, { recursive: true, force: true })
  try {
    await fill(temporary)
    await rename(temporary, target)
  } catch (error) {
    if (!existsSync(target)) throw error
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }
}

/**
 * Reads a secret from a file that only its owner can read, and generates it if there is none. Concurrent processes get the
 * same secret. An empty file, which a full disk can leave, counts as none.
 */
export async function loadOrCreateSecret(file: string, generate: () => string): Promise<string> {
  const existing = await readSecret(file)
  if (existing !== '') return existing
  const temporary = temporaryName(file)
  await rm(temporary, { force: true })
  try {
    await writeFile(temporary, `${generate()}\n`, { mode: 0o600, flag: 'wx', flush: true })
    if (existsSync(file) && (await readSecret(file)) === '') await rm(file, { force: true })
    // Unlike a rename, a link fails if another process was faster. Some file systems have no links.
    await link(temporary, file).catch((error: unknown) =>
      isExisting(error) ? undefined : rename(temporary, file),
    )
  } finally {
    await rm(temporary, { force: true })
  }
  return readSecret(file)
}

async function readSecret(file: string): Promise<string> {
  return (await readFile(file, 'utf8').catch(() => '')).trim()
}

/** Whether a file could not be created because it exists. */
export function isExisting(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EEXIST'
}
