import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, constants, mkdir, open } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { messageOf, StartUpError } from '../config/errors.ts'
import type { Account } from './account.ts'
import { createFolderOnce } from './create-once.ts'

const run = promisify(execFile)

/** Where a server runs, and how. */
export interface Place {
  /** The folder with PostgreSQL's programs in `bin`. */
  readonly programs: string
  /** The folder of the server, with `data` and `postgres.log`. */
  readonly directory: string
  readonly account: Account
}

/**
 * Creates the database cluster (PostgreSQL manual, section 18.2), unless it exists.
 *
 * @param password that of its superuser
 */
export async function createCluster(
  { programs, directory, account }: Place,
  password: string,
): Promise<void> {
  const { uid, gid } = account
  await createFolderOnce(path.join(directory, 'data'), async (temporary) => {
    await mkdir(temporary, { mode: 0o700 })
    if (uid !== undefined && gid !== undefined) await chown(temporary, uid, gid)
    const initdb = [path.join(programs, 'bin', 'initdb'), `--pgdata=${temporary}`, '--pwfile=/dev/stdin']
    const options = ['--username=postgres', '--auth=scram-sha-256', '--encoding=UTF8', '--no-locale']
    // Another account may not open root's files or Node's pipes by a path, but the pipe of its own shell.
    const creation = run('sh', ['-c', 'cat | "$@"', 'sh', ...initdb, ...options], { ...account, cwd: '/' })
    creation.child.stdin?.end(`${password}\n`)
    await creation.catch((error: unknown) => {
      throw new StartUpError(`The embedded PostgreSQL cannot create its data: ${messageOf(error)}`, {
        cause: error,
      })
    })
  })
}

/**
 * Becomes PostgreSQL, after it has started a process that stops PostgreSQL when standard input closes. The operating system closes
 * it when this process ends, whatever ended it.
 */
const SERVER_SCRIPT = 'exec 3<&0; ( { cat <&3; kill -INT $$; } >/dev/null 2>&1 & ); exec "$@" 3<&- </dev/null'

/** A server that runs as a child of this process. */
export interface ServerProcess {
  /** Resolves when the server has ended, also on its own, with how it ended. */
  readonly ended: Promise<string>
  /** Stops the server in fast mode, which rolls back open transactions. */
  stop(): Promise<void>
}

/** Starts the server on an existing cluster. It may not accept connections yet. */
export async function startServer(
  { programs, directory, account }: Place,
  settings: Readonly<Record<string, string>>,
): Promise<ServerProcess> {
  const server = [path.join(programs, 'bin', 'postgres'), '-D', path.join(directory, 'data')]
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants
  const log = await open(
    path.join(directory, 'postgres.log'),
    O_APPEND | O_CREAT | O_NOFOLLOW | O_WRONLY,
    0o600,
  )
  const child = spawn('sh', ['-c', SERVER_SCRIPT, 'sh', ...server, ...options], {
    ...account,
    cwd: '/',
    // In a session of its own, so that Ctrl-C does not reach it.
    detached: true,
    stdio: ['pipe', log.fd, log.fd],
  })
  const ended = once(child, 'exit').then(([code, signal]) => {
    killGroup(child.pid)
    return signal === null ? `it exited with code ${code}` : `${signal} ended it`
  })
  await log.close()
  return {
    ended,
    async stop() {
      child.kill('SIGINT')
      await ended
    },
  }
}

/** Ends what is left of the group: the process that waits for standard input to close. PostgreSQL's others have left it. */
function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
