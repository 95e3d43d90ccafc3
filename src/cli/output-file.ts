import { open, realpath, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Writable } from 'node:stream'
import { CommandFailure } from './failure.ts'

/**
 * Has `write` fill a file, and returns what it returns. The file appears under its name when it is complete; until
 * then, and if `write` fails, what was there before stays. `write` must end the stream.
 *
 * @throws {CommandFailure} where the file cannot be made
 */
export async function writeFileWhole<Result>(
  file: string,
  write: (stream: Writable) => Promise<Result>,
): Promise<Result> {
  const found = await stat(file).catch(() => undefined)
  // Something like /dev/null or a named pipe is written to: to rename a file over it would remove it.
  if (found !== undefined && !found.isFile()) return write(await openStream(file, file, 'w', 0o666))
  const target = found === undefined ? path.resolve(file) : await realpath(file)
  const unfinished = path.join(path.dirname(target), `.${path.basename(target)}.${process.pid}.unfinished`)
  const stream = await openStream(file, unfinished, 'wx', found?.mode ?? 0o666)
  try {
    const result = await write(stream)
    await rename(unfinished, target)
    return result
  } catch (error) {
    await rm(unfinished, { force: true })
    throw error
  }
}

/** Opens a file that stands in for the one of `name`, by which messages call it. */
async function openStream(name: string, file: string, flags: string, mode: number): Promise<Writable> {
  try {
    return (await open(file, flags, mode)).createWriteStream()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    const reason = error instanceof Error ? error.message.split(', open ')[0] : error
    throw new CommandFailure(
      code === 'ENOENT'
        ? `${name} cannot be written: there is no folder ${path.dirname(name)}`
        : `${name} cannot be written: ${reason}`,
    )
  }
}
