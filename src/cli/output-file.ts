import { randomUUID } from 'node:crypto'
import { statSync } from 'node:fs'
import { open, realpath, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import type { Writable } from 'node:stream'
import { printable } from '../process/printable.ts'
import { CommandFailure } from './failure.ts'

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
    const found = statSync(file, { throwIfNoEntry: false })
    // Write directly to something like /dev/null or a named pipe: renaming a file over it would replace it.
    if (found !== undefined && !found.isFile())
      return await write((await open(file, 'w')).createWriteStream())
    return await replace(found === undefined ? file : await realpath(file), found?.mode, write)
  } catch (error) {
    if (!(error instanceof Error && 'syscall' in error)) throw error
    // The name of the unfinished file would say nothing.
    const reason = printable(error.message).replace(/, open .*/, '')
    throw new CommandFailure(`${printable(file)} cannot be written: ${reason}`)
  }
}

async function replace<Result>(
  target: string,
  mode: number | undefined,
  write: (stream: Writable) => Promise<Result>,
): Promise<Result> {
  // Not named after the process: in a container, one that was killed and the next one often have the same ID.
  const unfinished = path.join(path.dirname(target), `.inventory-${randomUUID()}.unfinished`)
  const handle = await open(unfinished, 'wx', mode)
  try {
    // Flushed to disk before the rename: a crash must not leave an incomplete file under the name.
    const result = await write(handle.createWriteStream({ flush: true }))
    await rename(unfinished, target)
    return result
  } catch (error) {
    await rm(unfinished, { force: true })
    throw error
  }
}
