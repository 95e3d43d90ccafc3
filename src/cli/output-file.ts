import { randomUUID } from 'node:crypto'
import type { Stats } from 'node:fs'
import { chmod, open, readlink, realpath, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Writable } from 'node:stream'
import { printable } from '../process/printable.ts'
import { CommandFailure, isSystemError } from './failure.ts'

/**
 * Writes a file atomically and returns the result of `write`, which must end the stream. The file appears under its name
 * when it is complete; until then, and if `write` fails, an existing file stays.
 *
 * @throws {CommandFailure} if the file cannot be created or written
 */
export async function writeFileWhole<Result>(
  file: string,
  write: (stream: Writable) => Promise<Result>,
): Promise<Result> {
  try {
    return await writeOrReplace(file, write)
  } catch (error) {
    if (!isSystemError(error)) throw error
    const reason = isMissing(error)
      ? `there is no folder ${path.dirname(path.resolve(file))}`
      : error.message.replace(/, open .*/, '')
    throw new CommandFailure(printable(`${file} cannot be written: ${reason}`))
  }
}

async function writeOrReplace<Result>(
  file: string,
  write: (stream: Writable) => Promise<Result>,
): Promise<Result> {
  const found = await statOf(file)
  // Write directly to something like /dev/null or a named pipe: renaming a file over it would replace it.
  if (found !== undefined && !found.isFile()) return write((await open(file, 'w')).createWriteStream())
  const target = await targetOf(file)
  // Not named after the process: in a container, one that was killed and the next one often have the same ID.
  const unfinished = path.join(path.dirname(target), `.inventory-${randomUUID()}.unfinished`)
  // Flushed to disk before the rename: a crash must not leave an incomplete file under the name.
  const handle = await open(unfinished, 'wx', found?.mode)
  try {
    const result = await write(handle.createWriteStream({ flush: true }))
    // The umask has removed some of the permissions.
    if (found !== undefined) await chmod(unfinished, found.mode)
    await rename(unfinished, target)
    return result
  } catch (error) {
    await rm(unfinished, { force: true })
    throw error
  }
}

/** Returns undefined if there is no such file. */
async function statOf(file: string): Promise<Stats | undefined> {
  return stat(file).catch((error: unknown) => {
    if (isMissing(error)) return undefined
    throw error
  })
}

/** Follows links, which a rename would replace, and unlike `realpath`, also to a file that does not exist yet. */
async function targetOf(file: string): Promise<string> {
  const link = await readlink(file).catch(() => undefined)
  if (link === undefined) return path.resolve(file)
  return targetOf(path.resolve(await realpath(path.dirname(file)), link))
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}
