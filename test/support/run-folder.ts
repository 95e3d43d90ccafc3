import { access, constants, mkdtemp, rm, statfs, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'

/** Linux keeps the files below it in memory. */
const IN_MEMORY = '/dev/shm'

/** More than all clusters of a run that exist at the same time. */
const NEEDED_BYTES = 3e9

/**
 * Creates the folder for all files of a run: in memory if there is room. A database is hundreds of files, and on a disk, ext4 takes five
 * times as long to create them while others are being removed.
 */
export async function makeRunFolder(): Promise<string> {
  const create = (parent: string): Promise<string> => mkdtemp(path.join(parent, 'petstore-inventory-test-'))
  try {
    const { bavail, bsize } = await statfs(IN_MEMORY)
    if (bavail * bsize < NEEDED_BYTES) return await create(tmpdir())
    const folder = await create(IN_MEMORY)
    if (await isExecutable(folder)) return folder
    await rm(folder, { recursive: true })
  } catch {
    // There is no such folder.
  }
  return create(tmpdir())
}

/** Whether programs may run in a folder: containers often forbid it for files in memory. */
async function isExecutable(folder: string): Promise<boolean> {
  const program = path.join(folder, 'program')
  await writeFile(program, '', { mode: 0o755 })
  return access(program, constants.X_OK).then(
    () => true,
    () => false,
  )
}
