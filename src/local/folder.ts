import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { access, chmod, chown, constants, mkdir, readFile, readlink, realpath, rm } from 'node:fs/promises'
import path from 'node:path'
import { messageOf, StartUpError } from '../config/errors.ts'
import { type Account, canExecute, isOnlyOfRoot } from './account.ts'

/**
 * Creates the folder of a server, and returns its path. As root, only `data` in it will belong to the account of the server, and
 * another folder below /var/lib is used if others than root can replace the wanted one, or the account cannot enter it.
 *
 * @throws {StartUpError} if the current user may not create the folder or write to it
 */
export async function createServerFolder(wanted: string, account: Account): Promise<string> {
  const { uid } = account
  const parent = path.dirname(path.resolve(wanted))
  try {
    const created = await mkdir(parent, { recursive: true })
    // With a strict umask, the account could not enter it.
    if (created !== undefined && uid !== undefined) await chmod(parent, 0o711)
    await access(parent, constants.W_OK)
  } catch (error) {
    throw new StartUpError(
      `The embedded PostgreSQL cannot keep its data in ${parent}: ${messageOf(error)}. ` +
        'Start the service in a folder that you may write to, or set DATABASE_URL to use your own PostgreSQL.',
      { cause: error },
    )
  }
  const isUsable = uid === undefined || (isOnlyOfRoot(await realpath(parent)) && canExecute(account, parent))
  const [first, fallback] = foldersOf(wanted)
  const directory = isUsable ? first : fallback
  await mkdir(directory, { recursive: true, mode: 0o700 })
  if (uid === undefined) return directory
  if (!isUsable) await chmod(path.dirname(directory), 0o711)
  await chmod(directory, 0o711)
  // Version 2 gave the folder to the account.
  await chown(directory, 0, 0)
  return directory
}

/** Returns the wanted folder of a server, and the one that root uses instead if it must. */
function foldersOf(wanted: string): [string, string] {
  const folder = path.resolve(wanted)
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 16)
  return [folder, `/var/lib/petstore-inventory/${name}`]
}

/** A server that runs on a folder. */
export interface RunningServer {
  readonly directory: string
  readonly pid: number
  readonly port: string
}

/** Returns the server that runs on the folder that `createServerFolder` returned for the wanted one, if any. */
export async function findServer(wanted: string): Promise<RunningServer | undefined> {
  const [first, fallback] = foldersOf(wanted)
  return (await runningServer(first)) ?? (await runningServer(fallback))
}

/**
 * Returns the server that runs on a folder. If the process in its file is another program by now, even another PostgreSQL, as
 * after a crash, removes the file: PostgreSQL would refuse to start.
 */
export async function runningServer(directory: string): Promise<RunningServer | undefined> {
  const data = path.join(directory, 'data')
  const file = path.join(data, 'postmaster.pid')
  // Its lines (PostgreSQL manual, section 66.1): the process id, the folder, the time of the start, the port.
  const [pid = '', , , port = ''] = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  if (!/^\d+$/.test(pid)) return undefined
  if (await worksIn(pid, data)) return { directory, pid: Number(pid), port }
  await rm(file, { force: true })
  return undefined
}

/** Whether a process works in a folder, as a server does in that of its data. Without /proc, any process may. */
async function worksIn(pid: string, data: string): Promise<boolean> {
  if (!existsSync('/proc/self')) return isRunning(Number(pid))
  const folder = await readlink(`/proc/${pid}/cwd`).catch(() => undefined)
  if (folder !== undefined) return folder === (await realpath(data))
  // Root in a container may not see it, but the command line.
  const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return commandLine.split('\0').includes(data)
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}
