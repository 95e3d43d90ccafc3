import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { statSync } from 'node:fs'
import { access, chmod, chown, constants, mkdir, readFile, realpath, rm } from 'node:fs/promises'
import path from 'node:path'
import { messageOf, StartUpError } from '../config/errors.ts'
import { type Account, succeedsAs } from './account.ts'

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
  const isUsable =
    uid === undefined || (isOnlyOfRoot(await realpath(parent)) && succeedsAs(account, 'test', ['-x', parent]))
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

/** Whether only root can replace a folder or one above it, so that root may change what is at a path in it. */
function isOnlyOfRoot(folder: string): boolean {
  const { uid, mode } = statSync(folder)
  // In a sticky folder such as /tmp, users can replace only what is their own.
  const isOpen = (mode & 0o022) !== 0 && (mode & 0o1000) === 0
  const parent = path.dirname(folder)
  return uid === 0 && !isOpen && (parent === folder || isOnlyOfRoot(parent))
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
  readonly pid: string
  readonly port: string
  readonly isStopping: boolean
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
  // The process id, the folder, the time of the start, the port, three others, and what pg_ctl waits for.
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  const [pid = '', , , port = '', , , , status = ''] = lines
  if (!/^\d+$/.test(pid)) return undefined
  if ((await commandLineOf(pid)).includes(` -D ${data} `)) {
    return { directory, pid, port, isStopping: status.startsWith('stopping') }
  }
  await rm(file, { force: true })
  return undefined
}

/** Returns the program and the arguments of a process, each followed by a space; empty if there is no such process. */
async function commandLineOf(pid: string): Promise<string> {
  try {
    if (process.platform === 'linux')
      return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
    return execFileSync('ps', ['-o', 'command=', '-p', pid], { encoding: 'utf8' }).replace('\n', ' ')
  } catch {
    return ''
  }
}
