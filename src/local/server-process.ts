import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { chown, mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { bareEnvironment } from '../config/environment.ts'
import { OperatorError } from '../database/operator-error.ts'
import { createOnce } from './folder.ts'

/** Returns the account to run PostgreSQL as: instead of root, as which it refuses to run, `postgres` or else `nobody`. */
export function serverAccount() {
  if (process.getuid?.() !== 0) return {}
  const script = 'for name in postgres nobody; do id -u $name && id -g $name && break; done'
  const ids = execFileSync('sh', ['-c', script], { env: bareEnvironment(), stdio: 'pipe' }).toString()
  const [uid = 0, gid = 0] = ids.split('\n').map(Number)
  return { uid, gid }
}

/** Where a server runs, and how. */
export interface Place {
  /** The folder with PostgreSQL's programs in `bin`. */
  readonly programs: string
  /** The folder of the server, with `data` and `postgres.log`. */
  readonly directory: string
}

/** Becomes initdb, which opens the password by a path. Another account may not open root's files and pipes, but a here-document. */
const INITDB_SCRIPT = 'read -r password; exec "$@" <<END\n$password\nEND\n'

/**
 * Creates the database cluster (PostgreSQL manual, section 18.2), unless it exists, with the password of its superuser. The signal ends
 * initdb.
 */
export async function createCluster(place: Place, password: string, signal: AbortSignal): Promise<void> {
  const { uid, gid } = serverAccount()
  await createOnce(path.join(place.directory, 'data'), async (temporary) => {
    await mkdir(temporary, { mode: 0o700 })
    if (uid !== undefined && gid !== undefined) await chown(temporary, uid, gid)
    const options = ['--username=postgres', '--auth=scram-sha-256', '--encoding=UTF8', '--no-locale']
    const initdb = ['initdb', `--pgdata=${temporary}`, '--pwfile=/dev/stdin', ...options]
    const { child, ended } = startProgram(place, INITDB_SCRIPT, initdb)
    child.stdin?.end(`${password}\n`)
    const kill = (): void => killGroup(child)
    signal.addEventListener('abort', kill)
    if (signal.aborted) kill()
    const how = await ended
    signal.removeEventListener('abort', kill)
    signal.throwIfAborted()
    if (child.exitCode === 0) return
    throw new OperatorError(
      `The embedded PostgreSQL cannot create its data: ${how}. See ${toLogFile(place.directory)}. Set DATABASE_URL to use your own.`,
    )
  })
}

/** Becomes PostgreSQL, and leaves a process that stops it when standard input closes, which the system does whatever ends this process. */
const SERVER_SCRIPT = 'exec 3<&0; ( { cat <&3; kill -INT $$; } >/dev/null 2>&1 & ); exec "$@" 3<&- </dev/null'

/** Starts the server on an existing cluster. It may not accept connections yet. */
export function startServer(place: Place, settings: Readonly<Record<string, string>>) {
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const server = ['postgres', '-D', path.join(place.directory, 'data'), ...options]
  const { child, ended } = startProgram(place, SERVER_SCRIPT, server)
  return {
    /** Resolves when the server has ended, with how it ended. */
    ended,
    /** Stops the server in fast mode, which rolls back open transactions. */
    async stop() {
      child.kill('SIGINT')
      await ended
    },
  }
}

/** The file with the output of the programs. */
export function toLogFile(directory: string): string {
  return path.join(directory, 'postgres.log')
}

/** Starts a shell script that becomes a program of PostgreSQL. `ended` resolves with how it ended. */
function startProgram(
  { programs, directory }: Place,
  script: string,
  [name = '', ...args]: readonly string[],
): { child: ChildProcess; ended: Promise<string> } {
  const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants
  const log = openSync(toLogFile(directory), O_APPEND | O_CREAT | O_NOFOLLOW | O_WRONLY, 0o600)
  const child = spawn('sh', ['-c', script, 'sh', path.join(programs, 'bin', name), ...args], {
    ...serverAccount(),
    env: bareEnvironment(),
    cwd: '/',
    // In a session of its own, so that Ctrl-C does not reach it.
    detached: true,
    stdio: ['pipe', log, log],
  })
  closeSync(log)
  return { child, ended: waitForEnd(child, toLogFile(directory)) }
}

/** Waits for a program and its process group. Returns how it ended, and the last error in its log. */
async function waitForEnd(child: ChildProcess, log: string): Promise<string> {
  const [code, signal] = await once(child, 'exit')
  // The process that waits for standard input to close. PostgreSQL's others have left the group.
  killGroup(child)
  if (!code) return `${signal ?? 'another program'} ended it`
  const [, error = ''] = LAST_ERROR.exec(await readFile(log, 'utf8').catch(() => '')) ?? []
  const how = `it exited with code ${code}: ${error}`
  const [, advice] = reasons.find(([pattern]) => pattern.test(how)) ?? []
  return advice === undefined ? how : `${how}. ${advice}`
}

const LAST_ERROR = /[\s\S]*((?:sh: |initdb: (?:error|could)|FATAL: ).*)/

/** What may keep PostgreSQL's programs from running, by their errors and those of the shell. */
const reasons: readonly (readonly [RegExp, string])[] = [
  [/code 126/, 'Its file system does not let programs run (mount option noexec): use another folder'],
  [/code 127/, 'It needs glibc, which Alpine does not have'],
  [
    /(change|invalid) permissions/,
    'Its file system has no permissions, such as /mnt/c in WSL: use another folder',
  ],
]

function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
