import { chmod, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import type { Test } from 'tap'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/local/embedded.ts'
import { EmbeddedServerError } from '../../src/local/embedded-programs.ts'
import { asService, copyCluster, makeCluster, SERVICE } from './cluster.ts'
import { temporaryFolder } from './program.ts'

/** How long a server may take to start, in milliseconds: after a kill, the processes it left behind must end first. */
const START_LIMIT = 60_000

type Row = Readonly<Record<string, string | null>>

/** A PostgreSQL server of a test's own, which the test may hurt. What it has committed, it has written to the disk. */
export interface OwnServer {
  /** A database with the newest schema and no rows, for a role that is no superuser; the same after every start. */
  readonly url: string
  /** The same database for the superuser. */
  readonly superuserUrl: string
  /** The name of that role. */
  readonly role: string
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
  /** Halts all of its processes by SIGSTOP, wherever they are. */
  suspend(): Promise<void>
  /** Lets them go on. */
  resume(): void
}

/**
 * Starts the embedded PostgreSQL in a folder that goes away with the test. With `isDistinct`, the service can tell it from
 * the other servers.
 */
export async function startOwnServer(
  t: Test,
  settings: Readonly<Record<string, string>> = {},
  { isDistinct = false } = {},
): Promise<OwnServer> {
  const folder = await temporaryFolder(t)
  await chmod(folder, 0o755)
  const directory = path.join(folder, 'postgres')
  let running = true
  await (isDistinct ? makeCluster : copyCluster)(directory)
  let server = await startEmbeddedServer({ directory, settings })
  const halted = new Set<number>()
  const superuserUrl = server.url
  const { port } = new URL(superuserUrl)

  const query = async (text: string): Promise<Row[]> => {
    const client = await connect(superuserUrl)
    try {
      return (await client.query<Row>(text)).rows
    } finally {
      await client.end()
    }
  }
  const firstProcess = async (): Promise<number> =>
    Number((await readFile(path.join(server.directory, 'data', 'postmaster.pid'), 'utf8')).split('\n')[0])
  const halt = (pid: number): void => {
    process.kill(pid, 'SIGSTOP')
    halted.add(pid)
  }
  const resume = (): void => {
    for (const pid of halted) signal(pid, 'SIGCONT')
    halted.clear()
  }

  t.teardown(async () => {
    resume()
    if (running) await server.stop()
  })
  return {
    url: asService(superuserUrl),
    superuserUrl,
    role: SERVICE,
    query,
    resume,
    async kill() {
      running = false
      process.kill(await firstProcess(), 'SIGKILL')
    },
    async crash() {
      const writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
      const [before] = await query(writer)
      process.kill(Number(before?.['pid']), 'SIGKILL')
      const deadline = performance.now() + START_LIMIT
      for (;;) {
        const [now] = await query(writer).catch(() => [])
        if (now !== undefined && now['pid'] !== before?.['pid']) return
        if (performance.now() > deadline) throw new Error('PostgreSQL has not restarted')
        await setTimeout(20)
      }
    },
    async stop() {
      running = false
      await server.stop()
    },
    async start() {
      server = await startAgain(directory, { ...settings, port })
      running = true
    },
    async suspend() {
      const client = await connect(superuserUrl)
      // First the one that would start others; then the others, until there is none left that goes on.
      halt(await firstProcess())
      const others = async (): Promise<number[]> =>
        (
          await client.query<{ pid: number }>(
            'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid <> ALL ($1)',
            [[...halted]],
          )
        ).rows.map(({ pid }) => pid)
      for (let pids = await others(); pids.length > 0; pids = await others()) pids.forEach(halt)
      await client.end()
    },
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, types: { getTypeParser: () => String } })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** A server refuses to start while processes of the one that was killed still have its memory. */
async function startAgain(directory: string, settings: Record<string, string>): Promise<EmbeddedServer> {
  const deadline = performance.now() + START_LIMIT
  for (;;) {
    try {
      return await startEmbeddedServer({ directory, settings })
    } catch (error) {
      if (!(error instanceof EmbeddedServerError) || performance.now() > deadline) throw error
      await setTimeout(50)
    }
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
