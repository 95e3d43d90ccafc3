import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { createFolderOnce, loadOrCreateSecret } from './create-once.ts'
import { type Account, EmbeddedServerError, giveTo } from './embedded-programs.ts'
import { freePort } from './free-port.ts'

const run = promisify(execFile)

/**
 * A database cluster (PostgreSQL manual, section 18.2) in the folder `data` of a directory, and the programs that create, start
 * and stop it. Several processes may do so at once.
 */
export class DatabaseCluster {
  readonly #directory: string
  readonly #programs: string
  readonly #account: Account

  constructor(directory: string, programs: string, account: Account) {
    this.#directory = directory
    this.#programs = programs
    this.#account = account
  }

  /**
   * Creates the cluster and the password of its superuser, unless they exist.
   *
   * @throws {EmbeddedServerError}
   */
  async create(): Promise<void> {
    const password = path.join(this.#directory, 'password')
    await loadOrCreateSecret(password, () => randomBytes(24).toString('base64url'))
    await giveTo(this.#account, password)
    await createFolderOnce(path.join(this.#directory, 'data'), (temporary) =>
      this.#command('initdb', [
        `--pgdata=${path.basename(temporary)}`,
        '--username=postgres',
        '--auth=scram-sha-256',
        '--pwfile=password',
        '--encoding=UTF8',
        '--no-locale',
      ]),
    )
  }

  /**
   * Starts the server unless it is running, and returns whether this call has started it.
   *
   * @param given server settings, as in `EmbeddedOptions`
   * @throws {EmbeddedServerError}
   */
  async start(given: Readonly<Record<string, string>>): Promise<boolean> {
    const file = pidFile(this.#directory)
    if (!(await isPostgres(file))) await rm(file, { force: true })
    if (await this.#isRunning()) return false
    const settings = {
      listen_addresses: '127.0.0.1',
      port: String(await freePort('127.0.0.1')),
      unix_socket_directories: '',
      ...given,
    }
    const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`)
    try {
      // pg_ctl starts the server in a session of its own, so that Ctrl-C does not reach it.
      await this.#command('pg_ctl', [
        'start',
        '--wait',
        '--pgdata=data',
        '--log=postgres.log',
        `--options=${options.join(' ')}`,
      ])
      return true
    } catch (error) {
      // Another process may have started the server in the meantime.
      if (await this.#isRunning()) return false
      throw error
    }
  }

  /** Stops the server in fast mode, if it is running. */
  async stop(): Promise<void> {
    if (await this.#isRunning())
      await this.#command('pg_ctl', ['stop', '--wait', '--mode=fast', '--pgdata=data'])
  }

  #isRunning(): Promise<boolean> {
    return this.#run('pg_ctl', ['status', '--pgdata=data']).then(
      () => true,
      () => false,
    )
  }

  async #command(name: string, args: string[]): Promise<void> {
    try {
      await this.#run(name, args)
    } catch (error) {
      const log = path.join(this.#directory, 'postgres.log')
      throw new EmbeddedServerError(`The embedded PostgreSQL failed at "${name} ${args[0]}". See ${log}`, {
        cause: error,
      })
    }
  }

  /** Paths in `args` are relative, because the name of the folder may contain characters that are special in pg_ctl's shell. */
  #run(name: string, args: string[]): Promise<unknown> {
    return run(path.join(this.#programs, 'bin', name), args, { ...this.#account, cwd: this.#directory })
  }
}

/** The file that exists while the server is running. Its first line is the process id, the fourth is the port. */
export function pidFile(directory: string): string {
  return path.join(directory, 'data', 'postmaster.pid')
}

/**
 * Returns false if the process in the file is not PostgreSQL, or a zombie: after a crash or a reboot, the process id may
 * belong to another program. Without /proc, pg_ctl decides.
 */
async function isPostgres(file: string): Promise<boolean> {
  if (!existsSync(file) || !existsSync('/proc/self/cmdline')) return true
  const [pid] = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  // The server has just created the file, or removed it.
  if (pid === '') return true
  const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return commandLine.includes('postgres')
}
