import { existsSync } from 'node:fs'
import { link, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'

/** Names of files and folders that a process is creating, or has left when it was killed, with the process id. */
const UNFINISHED = /\.unfinished-(\d+)$/

function temporaryName(target: string): string {
  return `${target}.unfinished-${process.pid}`
}

/**
 * Creates a folder unless it exists. `fill` creates it under a temporary name, so that an interrupted creation never looks
 * complete. If several processes create it at once, the first one to finish wins, and the others use its folder.
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

/** Removes the unfinished files and folders of killed processes. Those of running ones may still grow. */
export async function removeUnfinished(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const [, pid] = UNFINISHED.exec(name) ?? []
    if (pid === undefined || isRunning(Number(pid))) continue
    await rm(path.join(folder, name), { recursive: true, force: true })
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // Any other error, such as EPERM, means that there is such a process (kill(2)).
    return !(error instanceof Error && 'code' in error && error.code === 'ESRCH')
  }
}

async function readSecret(file: string): Promise<string> {
  return (await readFile(file, 'utf8').catch(() => '')).trim()
}

/** Whether a file could not be created because it exists. */
export function isExisting(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EEXIST'
}
