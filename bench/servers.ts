import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freePort } from '../test/support/ports.ts'

/** A server to be measured, in its own process. */
export type Server = Awaited<ReturnType<typeof startServer>>

export interface ServerSetup {
  readonly databaseUrl: string
  readonly key: string
  /** Working directory. It must not contain a `.env` file, because the service would read its settings. */
  readonly directory: string
}

/** Pool size of all servers: the service's default. */
const POOL_SIZE = '10'

const START_TIMEOUT_MS = 60_000

const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

/** Starts the service as it runs in production. */
export async function startService(setup: ServerSetup): Promise<Server> {
  const args = [file('../dist/server.js')]
  return startServer(process.execPath, args, setup, { DATABASE_POOL_SIZE: POOL_SIZE })
}

/** Starts a server with the same API, built on Fastify and pg with their defaults. */
export function startPlainFastify(setup: ServerSetup): Promise<Server> {
  const args = [...process.execArgv, file('./plain-fastify.ts')]
  return startServer(process.execPath, args, setup, { POOL_SIZE, API_KEY: setup.key })
}

/** Builds and starts a server with the same API, built on Go's net/http and pgx with their defaults. */
export async function startGo(setup: ServerSetup): Promise<Server> {
  const program = path.join(setup.directory, 'go-peer')
  await promisify(execFile)('go', ['build', '-o', program, '.'], { cwd: file('./go') })
  return startServer(program, [], setup, { POOL_SIZE, API_KEY: setup.key })
}

async function startServer(
  program: string,
  args: string[],
  { databaseUrl, directory }: ServerSetup,
  env: Record<string, string>,
) {
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  const child = spawn(program, args, {
    cwd: directory,
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_ENV: 'production',
      DATABASE_URL: databaseUrl,
      PORT: String(port),
      ...env,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const ended = once(child, 'exit')
  const limit = performance.now() + START_TIMEOUT_MS
  // Any response will do.
  while ((await fetch(origin).catch(() => undefined)) === undefined) {
    if (child.exitCode !== null || performance.now() > limit) {
      child.kill('SIGKILL')
      throw new Error(`${args.at(-1) ?? program} did not start`)
    }
    await setTimeout(20)
  }
  return {
    /** Base address, without a path. */
    origin,
    pid: child.pid ?? 0,
    async stop(): Promise<void> {
      child.kill('SIGTERM')
      await ended
    },
  }
}

/** Returns the CPU time of a process and its children since their start, in seconds; NaN if it is unknown, as on macOS. */
export async function cpuSeconds(pid: number): Promise<number> {
  if (process.platform !== 'linux') return Number.NaN
  let ticks = 0
  for (const name of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')
    // The second field is the name of the program in parentheses, which may contain spaces.
    const [, parent, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(name) !== pid && Number(parent) !== pid) continue
    // utime, stime, cutime, cstime, in hundredths of a second (proc(5)).
    ticks += fields.slice(9, 13).reduce((sum, field) => sum + Number(field), 0)
  }
  return ticks / 100
}
