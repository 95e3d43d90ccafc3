import { createHash } from 'node:crypto'
import { existsSync, statSync } from 'node:fs'
import { chmod, chown, link, mkdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'

/**
 * Returns where the folder of a server may be: the wanted one and, as root, another one, which it is instead if others than root can
 * replace the wanted one, or not every account can enter it.
 */
export function foldersOf(wanted: string): readonly [wanted: string, ofRoot: string] {
  const folder = path.resolve(wanted)
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 16)
  return [folder, `/var/lib/petstore-inventory/${name}`]
}

/** Creates the folder of a server, and returns its path. As root, only what is created in it for another account will belong to it. */
export async function createServerFolder(wanted: string): Promise<string> {
  const [first, ofRoot] = foldersOf(wanted)
  const parent = path.dirname(first)
  const created = await mkdir(parent, { recursive: true })
  if (process.getuid?.() !== 0) {
    await mkdir(first, { recursive: true, mode: 0o700 })
    return first
  }
  // With a strict umask, the other account could not enter what is created here.
  if (created !== undefined) await chmod(parent, 0o711)
  const directory = isSafe(await realpath(parent)) ? first : ofRoot
  await mkdir(directory, { recursive: true })
  if (directory === ofRoot) await chmod(path.dirname(directory), 0o711)
  await chmod(directory, 0o711)
  // Version 2 gave the folder to the account.
  await chown(directory, 0, 0)
  return directory
}

/** Whether only root can replace a folder or one above it, so that root may change what is at a path in it, and all can enter it. */
function isSafe(folder: string): boolean {
  const { uid, mode } = statSync(folder)
  // In a sticky folder such as /tmp, users can replace only what is their own.
  const isOpen = (mode & 0o022) !== 0 && (mode & 0o1000) === 0
  const parent = path.dirname(folder)
  return uid === 0 && (mode & 0o001) !== 0 && !isOpen && (parent === folder || isSafe(parent))
}

/**
 * Creates a folder or a file unless it exists. `fill` creates it under a temporary name, so that an interrupted creation never looks
 * complete. If several processes create it at once, the first one to finish wins, and the others use what it has created: `finish`
 * gives it its name, and fails if there is another one.
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
 * Reads a secret from a file that only its owner can read, and generates it if there is none, or if someone has emptied the file.
 * Concurrent processes that create the file get the same.
 */
export async function loadOrCreateSecret(file: string, generate: () => string): Promise<string> {
  const load = async (): Promise<string> => (await readFile(file, 'utf8')).trim()
  const options = { mode: 0o600, flush: true }
  if (existsSync(file) && (await load()) === '') await rm(file)
  // A rename would replace the file of a process that was faster.
  await createOnce(file, (temporary) => writeFile(temporary, `${generate()}\n`, options), link)
  return load()
}
