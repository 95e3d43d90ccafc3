import { existsSync } from 'node:fs'
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises'

/**
 * Creates a folder unless it exists; `fill` creates it under a temporary name, so that an interrupted creation never looks complete.
 * If several processes create it at once, the first one to finish wins, and the others use its folder.
 */
export async function createFolderOnce(
  target: string,
  fill: (temporary: string) => Promise<unknown>,
): Promise<void> {
  if (existsSync(target)) return
  const temporary = `${target}.unfinished-${process.pid}`
  await rm(temporary, { recursive: true, force: true })
  try {
    await fill(temporary)
    await rename(temporary, target)
  } catch (error) {
    if (!existsSync(target)) throw error
  } finally {
    // A program that was killed may be writing its last file.
    await rm(temporary, { recursive: true, force: true, maxRetries: 10 })
  }
}

/** Reads a secret from a file that only its owner can read, and generates it if there is none. Concurrent processes get the same. */
export async function loadOrCreateSecret(file: string, generate: () => string): Promise<string> {
  if (!existsSync(file)) {
    const temporary = `${file}.unfinished-${process.pid}`
    await writeFile(temporary, `${generate()}\n`, { mode: 0o600, flush: true })
    // Unlike a rename, a link does not replace the file of a process that was faster.
    await link(temporary, file).catch((error: unknown) => {
      if (!existsSync(file)) throw error
    })
    await rm(temporary)
  }
  return (await readFile(file, 'utf8')).trim()
}
