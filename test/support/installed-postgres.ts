import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { giveTo, serverAccount } from './account.ts'
import { freePort } from './other-program.ts'
import { programsOf } from './postgres-programs.ts'
import { temporaryFolder } from './program.ts'

const run = promisify(execFile)

/** Where a server of a test runs. */
export interface ServerFolder {
  /** Its working directory; `data` in it is the folder of the database cluster. */
  readonly directory: string
  /** Runs one of PostgreSQL's programs there, under the account that the server runs as. */
  command(name: string, ...args: string[]): Promise<unknown>
}

/** Makes an empty folder for a server below `parent`. */
export async function makeServerFolder(programs: string, parent: string): Promise<ServerFolder> {
  const account = serverAccount()
  await chmod(parent, 0o711)
  const directory = path.join(parent, 'postgres')
  await mkdir(directory, { mode: 0o700 })
  await giveTo(account, directory)
  return {
    directory,
    command: (name, ...args) => run(path.join(programs, name), args, { ...account, cwd: directory }),
  }
}

/** A server of an installed PostgreSQL. */
export interface InstalledServer extends ServerFolder {
  /** The address as the superuser. */
  readonly url: string
  start(): Promise<void>
  stop(): Promise<void>
}

/** Starts a server of that version, which goes away with the test, and returns its address as the superuser. */
export async function startVersion(t: Test, version: number): Promise<string> {
  return (await startInstalled(t, version)).url
}

/** Starts a server of that version, which goes away with the test. */
export async function startInstalled(
  t: Test,
  version: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<InstalledServer> {
  const programs = await programsOf(version)
  if (programs === undefined) throw new Error(`PostgreSQL ${version} is not installed.`)
  const folder = await makeServerFolder(programs, await temporaryFolder(t))
  const { directory, command } = folder
  await command(
    'initdb',
    '--pgdata=data',
    '--username=postgres',
    '--auth=trust',
    '--encoding=UTF8',
    '--no-locale',
  )
  const port = await freePort()
  const all = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    fsync: 'off',
    ...settings,
  }
  const options = Object.entries(all).map(([name, value]) => `-c ${name}=${value}`)
  let isRunning = false
  const stop = async (): Promise<void> => {
    if (isRunning) await command('pg_ctl', 'stop', '--wait', '--mode=fast', '--pgdata=data')
    isRunning = false
  }
  const start = async (): Promise<void> => {
    await command(
      'pg_ctl',
      'start',
      '--wait',
      '--pgdata=data',
      '--log=postgres.log',
      `--options=${options.join(' ')}`,
    )
    isRunning = true
  }
  await start()
  t.teardown(async () => {
    if (existsSync(directory)) await stop()
  })
  return { ...folder, url: `postgres://postgres@127.0.0.1:${port}/postgres`, start, stop }
}
