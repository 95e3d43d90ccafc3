import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'

const isRoot = process.getuid?.() === 0

/** Returns the folder of a server: the wanted one, or as root, one that only root can replace and PostgreSQL's account can enter. */
export function serverFolder(wanted: string): string {
  const folder = path.resolve(wanted)
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 16)
  return isRoot ? `/var/lib/petstore-inventory/${name}` : folder
}

/** Creates the folder of a server, and returns it. */
export async function createServerFolder(wanted: string): Promise<string> {
  const directory = serverFolder(wanted)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  // Another account must be able to enter it.
  if (isRoot) for (const folder of [path.dirname(directory), directory]) await chmod(folder, 0o711)
  return directory
}

/**
 * Creates a folder or a file unless it exists. `fill` creates it under a temporary name, so that an interrupted creation never looks
 * complete. Of several processes, the first one to finish wins: `finish` gives it its name, and fails if there is another one.
 */
export async function createOnce(
  target: string,
  fill: (temporary: string) => Promise<unknown>,
  finish = rename,
): Promise<void> {
  if (existsSync(target)) return
  const temporary = `${target}.unfinished-${process.pid}`
  await rm(temporary, { recursive: true, force: true })
  try {
    await fill(temporary)
    await finish(temporary, target)
  } catch (error) {
    if (!existsSync(target)) throw error
  } finally {
    // A program that was killed may be writing its last file.
    await rm(temporary, { recursive: true, force: true, maxRetries: 10 })
  }
}

/**
 * Reads a secret from a file that only its owner can read, and generates it if the file is missing or empty. Concurrent processes get
 * the same.
 */
export async function loadOrCreateSecret(file: string, generate: () => string): Promise<string> {
  const load = async (): Promise<string> => (await readFile(file, 'utf8')).trim()
  const options = { mode: 0o600, flush: true }
  if (existsSync(file) && (await load()) === '') await rm(file)
  // A rename would replace the file of a process that was faster.
  await createOnce(file, (temporary) => writeFile(temporary, `${generate()}\n`, options), link)
  return load()
}
