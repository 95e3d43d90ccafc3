import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { open } from 'node:fs/promises'
import { connect } from 'node:net'
import { devNull } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freePort } from '../test/support/other-program.ts'
import { serverFlags } from '../test/support/program.ts'
import { cpuSecondsOf } from './cpu.ts'

/** A server to be measured, in its own process. */
export interface Server {
  /** Base URL, without a path. */
  readonly origin: string
  /** Returns the CPU time of the server's processes since its start, in seconds, or undefined if it is unknown. */
  cpuSeconds(): Promise<number | undefined>
  stop(): Promise<void>
}

/** How long to wait until a server listens, in milliseconds. */
const START_TIMEOUT_MS = 20_000

const service = [...(await serverFlags()), fileURLToPath(new URL('../dist/server.js', import.meta.url))]
const plainFastify = fileURLToPath(new URL('./baselines/plain-fastify.ts', import.meta.url))
const nodeHttp = fileURLToPath(new URL('./baselines/node-http.ts', import.meta.url))
const goPeer = fileURLToPath(new URL('./peers/go', import.meta.url))

/** Configuration of a server that uses a database. */
export interface ServerSetup {
  readonly databaseUrl: string
  readonly poolSize: number
  readonly key: string
  /** Working directory. It must not contain a `.env` file, because the service would read its settings. */
  readonly directory: string
}

/** Starts the service as it runs in production. */
export function startService(setup: ServerSetup): Promise<Server> {
  return startServer(process.execPath, service, setup.directory, {
    DATABASE_URL: setup.databaseUrl,
    API_KEYS: `bench:${setup.key}`,
    LOG_LEVEL: 'info',
  })
}

/** Starts a server with the same API, built on Fastify and pg with their defaults. */
export function startPlainFastify(setup: ServerSetup): Promise<Server> {
  return startServer(process.execPath, [...process.execArgv, plainFastify], setup.directory, {
    DATABASE_URL: setup.databaseUrl,
    POOL_SIZE: String(setup.poolSize),
    API_KEY: setup.key,
  })
}

/**
 * Builds and starts a server with the same API, built on Go's net/http and pgx with their defaults.
 *
 * @throws {Error} if Go is not installed, or cannot download the modules
 */
export async function startGo(setup: ServerSetup): Promise<Server> {
  const program = path.join(setup.directory, 'go-peer')
  await promisify(execFile)('go', ['build', '-o', program, '.'], { cwd: goPeer })
  return startServer(program, [], setup.directory, {
    DATABASE_URL: setup.databaseUrl,
    POOL_SIZE: String(setup.poolSize),
    API_KEY: setup.key,
  })
}

/** Starts a server that sends the bytes of a file and echoes updates. */
export function startNodeHttp(directory: string, listFile: string): Promise<Server> {
  return startServer(process.execPath, [...process.execArgv, nodeHttp], directory, { LIST_FILE: listFile })
}

async function startServer(
  program: string,
  args: string[],
  cwd: string,
  env: Record<string, string>,
): Promise<Server> {
  const port = await freePort()
  const log = await open(devNull, 'w')
  const child = spawn(program, args, {
    cwd,
    env: { PATH: process.env['PATH'] ?? '', NODE_ENV: 'production', ...env, PORT: String(port) },
    stdio: ['ignore', log.fd, 'inherit'],
  })
  await log.close()
  const ended = once(child, 'exit')
  await listening(child, port)
  return {
    origin: `http://127.0.0.1:${port}`,
    cpuSeconds: () => cpuSecondsOf(child.pid),
    async stop() {
      child.kill('SIGTERM')
      await ended
    },
  }
}

async function listening(child: ChildProcess, port: number): Promise<void> {
  const limit = performance.now() + START_TIMEOUT_MS
  while (!(await answers(port))) {
    const name = child.spawnargs.at(-1)
    if (child.exitCode !== null)
      throw new Error(`${name} exited with code ${child.exitCode} before it listened`)
    if (performance.now() > limit) {
      child.kill('SIGKILL')
      throw new Error(`${name} did not listen within ${START_TIMEOUT_MS} ms`)
    }
    await setTimeout(20)
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port })
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
