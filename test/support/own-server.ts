import { appendFile, chmod, readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Test } from 'tap'
import { StartUpError } from '../../src/config/errors.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/local/embedded.ts'
import { asService, copyCluster, makeCluster, SERVICE } from './cluster.ts'
import { eventually } from './eventually.ts'
import { connectTo, onServer, type Row } from './on-server.ts'
import { temporaryFolder } from './program.ts'

/** How long a server may take to start, in milliseconds: after a kill, the processes it left behind must end first. */
const START_LIMIT = 60_000

/** A PostgreSQL server of a test's own, which the test may hurt. What it has committed, it has written to the disk. */
export interface OwnServer {
  /** A database with the newest schema and no rows, for a role that is no superuser; the same after every start. */
  readonly url: string
  /** The same database for the superuser. */
  readonly superuserUrl: string
  /** The name of that role. */
  readonly role: string
  /** The folder with its data. */
  readonly data: string
  /** Runs a statement in that database as the superuser; every value arrives as text. */
  query(text: string): Promise<Row[]>
  /** Ends its first process with SIGKILL; its children end once they notice. */
  kill(): Promise<void>
  /** Ends one of the others with SIGKILL, upon which it ends all of them and restarts. Resolves when it has. */
  crash(): Promise<void>
  /** Stops it in good order; open transactions are rolled back. */
  stop(): Promise<void>
  /** Starts it again, on the same port. */
  start(): Promise<void>
  /** Starts it, after a stop, as a standby of another server. */
  follow(primary: OwnServer): Promise<void>
  /** Makes a standby a primary. Resolves when it takes writes. */
  promote(): Promise<void>
  /** Halts all of its processes by SIGSTOP, wherever they are. */
  suspend(): Promise<void>
  /** Lets them go on. */
  resume(): void
}

type Settings = Readonly<Record<string, string>>

/**
 * Starts the embedded PostgreSQL in a folder that goes away with the test. With `isDistinct`, the service can tell it from
 * the other servers.
 */
export async function startOwnServer(
  t: Pick<Test, 'teardown'>,
  settings: Settings = {},
  { isDistinct = false } = {},
): Promise<OwnServer> {
  const directory = await emptyFolder(t)
  await (isDistinct ? makeCluster : copyCluster)(directory)
  return serverOf(t, await startEmbeddedServer({ directory, settings }), settings)
}

/** Starts a primary and a standby of it. */
export async function startOwnPair(
  t: Pick<Test, 'teardown'>,
  settings: Settings = {},
): Promise<{ primary: OwnServer; standby: OwnServer }> {
  const primary = await startOwnServer(t, settings)
  // The standby begins as a copy of the files that the primary began with.
  const directory = await emptyFolder(t)
  await copyCluster(directory)
  await makeStandby(path.join(directory, 'data'), primary)
  return { primary, standby: serverOf(t, await startEmbeddedServer({ directory, settings }), settings) }
}

async function emptyFolder(t: Pick<Test, 'teardown'>): Promise<string> {
  const folder = await temporaryFolder(t)
  await chmod(folder, 0o755)
  return path.join(folder, 'postgres')
}

async function makeStandby(data: string, { superuserUrl }: OwnServer): Promise<void> {
  const { hostname, port, password } = new URL(superuserUrl)
  const connection = `primary_conninfo = 'host=${hostname} port=${port} user=postgres password=${password}'\n`
  await appendFile(path.join(data, 'postgresql.auto.conf'), connection)
  await appendFile(path.join(data, 'standby.signal'), '')
}

function serverOf(t: Pick<Test, 'teardown'>, started: EmbeddedServer, settings: Settings): OwnServer {
  const { url: superuserUrl, directory } = started
  const data = path.join(directory, 'data')
  let server = started
  let isRunning = true
  const halted = new Set<number>()
  const query = (text: string): Promise<Row[]> => onServer(superuserUrl, text)
  const firstProcess = async (): Promise<number> =>
    Number((await readFile(path.join(data, 'postmaster.pid'), 'utf8')).split('\n')[0])
  const halt = (pid: number): void => {
    process.kill(pid, 'SIGSTOP')
    halted.add(pid)
  }
  const resume = (): void => {
    for (const pid of halted) signal(pid, 'SIGCONT')
    halted.clear()
  }
  const start = async (): Promise<void> => {
    const { port } = new URL(superuserUrl)
    // A server refuses to start while processes of the one that was killed still have its memory.
    server = await eventually(
      'PostgreSQL to start',
      () =>
        startEmbeddedServer({ directory, settings: { ...settings, port } }).catch((error) => {
          if (error instanceof StartUpError) return undefined
          throw error
        }),
      START_LIMIT,
    )
    isRunning = true
  }
  t.teardown(async () => {
    resume()
    if (isRunning) await server.stop()
  })
  return {
    url: asService(superuserUrl),
    superuserUrl,
    role: SERVICE,
    data,
    query,
    resume,
    start,
    async kill() {
      isRunning = false
      process.kill(await firstProcess(), 'SIGKILL')
    },
    async crash() {
      const writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
      const [before] = await query(writer)
      process.kill(Number(before?.['pid']), 'SIGKILL')
      await eventually(
        'PostgreSQL to restart',
        async () => {
          const [now] = await query(writer).catch(() => [])
          return now !== undefined && now['pid'] !== before?.['pid']
        },
        START_LIMIT,
      )
    },
    async stop() {
      isRunning = false
      await server.stop()
    },
    async follow(primary) {
      await makeStandby(data, primary)
      await start()
    },
    async promote() {
      await query('SELECT pg_promote()')
    },
    async suspend() {
      const client = await connectTo(superuserUrl)
      // First the one that would start others; then the others, until there is none left that goes on.
      halt(await firstProcess())
      const others = async (): Promise<number[]> =>
        (
          await client.query<Row>(
            'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid <> ALL ($1)',
            [[...halted]],
          )
        ).rows.map(({ pid }) => Number(pid))
      for (let pids = await others(); pids.length > 0; pids = await others()) pids.forEach(halt)
      await client.end()
    },
  }
}

/** Signals a process that may have ended. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has.
  }
}
