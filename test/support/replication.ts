import { appendFile, readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import type { Test } from 'tap'
import { migrate } from '../../src/database/migrations/migrate.ts'
import { giveTo, serverAccount } from '../../src/local/embedded-programs.ts'
import { eventually } from './eventually.ts'
import { makeServerFolder } from './installed-postgres.ts'
import { freePort } from './other-program.ts'
import { programsOf } from './postgres-programs.ts'
import { temporaryFolder } from './program.ts'
import { setSynchronousStandby } from './synchronous-standby.ts'

/** The version that Debian 12 has. */
const VERSION = 15

type Row = Readonly<Record<string, string | null>>

/** One server of a replicated pair. */
export interface ReplicatedServer {
  /** The database with the inventory, as the role `service`, which is no superuser. */
  readonly url: string
  /** Runs a statement in that database as the superuser; every value arrives as text. */
  query(text: string): Promise<Row[]>
  /** Stops it in good order. */
  stop(): Promise<void>
  /** Kills all of its processes. */
  kill(): Promise<void>
  /** Halts all of its processes, so that nothing is answered and nothing is closed. */
  freeze(): Promise<void>
  /** Starts it again as it was. */
  start(): Promise<void>
  /** Makes a standby a primary, and waits until it takes writes. */
  promote(): Promise<void>
  /** Starts a stopped server as a standby of another one. */
  follow(primary: ReplicatedServer): Promise<void>
  /** As a standby of this one connects to it. */
  readonly connection: string
}

/**
 * A primary with one entry for each pet and 100 of others, so that lists are read by their changes, and a standby of it by
 * streaming replication.
 */
export interface ReplicatedPair {
  readonly primary: ReplicatedServer
  readonly standby: ReplicatedServer
}

/** Starts both; they go away with the test. */
export async function startPair(t: Test, pets: readonly number[]): Promise<ReplicatedPair> {
  const programs = await programsOf(VERSION)
  if (programs === undefined) throw new Error(`PostgreSQL ${VERSION} is not installed.`)
  const first = await makeServer(t, programs)
  await first.command(
    'initdb',
    '--pgdata=data',
    '--username=postgres',
    '--auth=trust',
    '--no-locale',
    '-E',
    'UTF8',
  )
  await first.configure('wal_log_hints = on', 'wal_keep_size = 256MB')
  await first.server.start()
  await migrate({ url: first.superuserUrl, direction: 'up' })
  await first.server.query(
    `CREATE ROLE service LOGIN; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO service;
     INSERT INTO inventory SELECT unnest(ARRAY[${pets.join()}]), 0, 'available';
     INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1000001, 1000100) AS n`,
  )
  const second = await makeServer(t, programs)
  await second.command(
    'pg_basebackup',
    '--pgdata=data',
    '--checkpoint=fast',
    '--wal-method=stream',
    `--dbname=${first.server.connection}`,
  )
  await second.server.follow(first.server)
  return { primary: first.server, standby: second.server }
}

interface Made {
  readonly server: ReplicatedServer
  readonly superuserUrl: string
  command(name: string, ...args: string[]): Promise<unknown>
  configure(...lines: string[]): Promise<void>
}

async function makeServer(t: Test, programs: string): Promise<Made> {
  const { directory, command } = await makeServerFolder(programs, await temporaryFolder(t))
  const port = await freePort()
  const superuserUrl = `postgres://postgres@127.0.0.1:${port}/postgres`
  const configure = async (...lines: string[]): Promise<void> => {
    await appendFile(path.join(directory, 'data', 'postgresql.auto.conf'), `${lines.join('\n')}\n`)
  }
  let isRunning = false
  const query = async (text: string): Promise<Row[]> => {
    const client = new pg.Client({ connectionString: superuserUrl, types: { getTypeParser: () => String } })
    client.on('error', () => {})
    await client.connect()
    try {
      const results = await client.query<Row>(text)
      return results.rows
    } finally {
      await client.end()
    }
  }
  const stop = async (mode: string): Promise<void> => {
    isRunning = false
    await command('pg_ctl', 'stop', '--wait', `--mode=${mode}`, '--pgdata=data')
  }
  const signalAll = async (name: NodeJS.Signals): Promise<number[]> => {
    const [first = ''] = (await readFile(path.join(directory, 'data', 'postmaster.pid'), 'utf8')).split('\n')
    const others = await query('SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()')
    const pids = [first, ...others.map((row) => row['pid'])].map(Number)
    for (const pid of pids) signal(pid, name)
    return pids
  }
  t.teardown(async () => {
    if (isRunning) await stop('immediate')
  })
  const server: ReplicatedServer = {
    url: `postgres://service@127.0.0.1:${port}/postgres`,
    connection: `host=127.0.0.1 port=${port} user=postgres`,
    query,
    stop: () => stop('fast'),
    async kill() {
      isRunning = false
      await signalAll('SIGKILL')
    },
    async freeze() {
      const frozen = await signalAll('SIGSTOP')
      t.teardown(() => {
        for (const pid of frozen) signal(pid, 'SIGKILL')
      })
      isRunning = false
    },
    async start() {
      const options = `-c listen_addresses=127.0.0.1 -c port=${port} -c unix_socket_directories= -c hot_standby=on`
      await eventually('the processes of the killed server to end', () =>
        command(
          'pg_ctl',
          'start',
          '--wait',
          '--pgdata=data',
          '--log=postgres.log',
          `--options=${options}`,
        ).then(
          () => true,
          () => undefined,
        ),
      )
      isRunning = true
    },
    async promote() {
      await command('pg_ctl', 'promote', '--wait', '--pgdata=data')
    },
    async follow(primary) {
      await appendFile(path.join(directory, 'data', 'standby.signal'), '')
      await giveTo(serverAccount(), path.join(directory, 'data', 'standby.signal'))
      await configure(`primary_conninfo = '${primary.connection}'`, "recovery_target_timeline = 'latest'")
      await server.start()
    },
  }
  return { server, superuserUrl, command, configure }
}

/** Signals a process, which may have ended with others. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has.
  }
}

/** Has the primary answer only once the standby has each commit, so that a crash loses none. */
export async function waitForStandby(primary: ReplicatedServer): Promise<void> {
  await setSynchronousStandby(primary, '*')
  await eventually('the standby to be synchronous', async () => {
    const rows = await primary.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
    return rows.length > 0 ? true : undefined
  })
}
