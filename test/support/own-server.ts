import { execFile } from 'node:child_process'
import { appendFile, chown, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { migrate } from '../../src/database/admin/migrate.ts'
import { startEmbeddedServer } from '../../src/local/embedded.ts'
import { createOnce } from '../../src/local/folder.ts'
import { copyPrograms } from '../../src/local/programs.ts'
import { createCluster, type Place, serverAccount, startServer } from '../../src/local/server-process.ts'
import { eventually } from './eventually.ts'
import { onServer, type Row } from './on-server.ts'
import { freePort } from './ports.ts'
import { temporaryFolder } from './program.ts'

const run = promisify(execFile)

/** A role that can do what the service needs, and no superuser. */
export const SERVICE = 'service'

let making: Promise<void> | undefined

/**
 * Fills a folder that does not exist with the data of an embedded server that has the newest schema, no rows, and the role
 * `SERVICE`. The first call in a run of the tests makes it; the others copy, as initdb takes ten times as long.
 */
export async function copyCluster(directory: string): Promise<void> {
  // The folder for temporary files is one of this run.
  const original = path.join(tmpdir(), 'cluster')
  // Two calls of one process would create it under the same temporary name.
  making ??= createOnce(original, makeCluster)
  await making
  await run('cp', ['-a', original, directory])
}

/** Fills a folder in the same way, with a cluster that the service can tell from the others, by its system identifier. */
export async function makeCluster(directory: string): Promise<void> {
  await mkdir(directory)
  // The programs have sixty megabytes: all servers of a run share them.
  await copyPrograms(tmpdir())
  await symlink(path.join(tmpdir(), 'package'), path.join(directory, 'package'))
  const server = await startEmbeddedServer(directory, { fsync: 'off' })
  try {
    await migrate({ url: server.url, direction: 'up' })
    const grant = `GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${SERVICE}`
    await onServer(server.url, `CREATE ROLE ${SERVICE} LOGIN; ${grant}`)
  } finally {
    await server.stop()
  }
}

/** A PostgreSQL server of a test's own, which the test may hurt. What it has committed, it has written to the disk. */
export type OwnServer = Awaited<ReturnType<typeof start>>

type Owner = Pick<Test, 'teardown'>
type Settings = Readonly<Record<string, string>>

/** Starts the embedded PostgreSQL on a folder that `fill` makes; by default with the newest schema, no rows and the service's role. */
export async function startOwnServer(t: Owner, settings: Settings = {}, fill = copyCluster) {
  const place = await makePlace(t)
  await fill(place.directory)
  return start(t, place, settings)
}

/** Starts a primary and a standby of it by streaming replication. */
export async function startOwnPair(t: Owner, settings: Settings = {}) {
  const primary = await startOwnServer(t, settings)
  const standby = await startOwnServer(t, settings, async (directory) => {
    // The standby begins as a copy of the files that the primary began with.
    await copyCluster(directory)
    await makeStandby(path.join(directory, 'data'), primary)
  })
  return { primary, standby }
}

/** The folder with the programs of a version of PostgreSQL: that of POSTGRES_14_BIN for one, else where Debian has it. */
export function findPrograms(version: number): string {
  return process.env[`POSTGRES_${version}_BIN`] ?? `/usr/lib/postgresql/${version}/bin`
}

/** Starts an empty server of a PostgreSQL that is installed elsewhere, whose programs are in a folder named `bin`. */
export async function startInstalled(t: Owner, bin: string, settings: Settings = {}) {
  const place = { ...(await makePlace(t)), programs: path.dirname(bin) }
  await mkdir(place.directory)
  await createCluster(place, 'unused', new AbortController().signal)
  return start(t, place, settings)
}

/** Gives a file or folder to the account that servers run as, if that is another one. */
export async function giveToServer(target: string): Promise<void> {
  const { uid, gid } = serverAccount()
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}

async function makePlace(t: Owner): Promise<Place> {
  const directory = path.join(await temporaryFolder(t), 'postgres')
  return { programs: await copyPrograms(tmpdir()), directory }
}

/** Has a server that is stopped start as a standby of the one on a port. */
async function makeStandby(data: string, { port }: { readonly port: number }): Promise<void> {
  const connection = `primary_conninfo = 'host=127.0.0.1 port=${port} user=postgres'\n`
  await appendFile(path.join(data, 'postgresql.auto.conf'), connection)
  await appendFile(path.join(data, 'standby.signal'), '')
}

/** Starts a server on a cluster, which from now on trusts everyone on this machine. */
async function start(t: Owner, place: Place, settings: Settings) {
  const data = path.join(place.directory, 'data')
  const addresses = ['all', 'replication'].map((database) => `host ${database} all 127.0.0.1/32 trust\n`)
  await writeFile(path.join(data, 'pg_hba.conf'), addresses.join(''))
  const port = await freePort()
  const address = { listen_addresses: '127.0.0.1', unix_socket_directories: '', port: String(port) }
  const superuserUrl = `postgres://postgres@127.0.0.1:${port}/postgres`
  /** Runs statements in the database `postgres` as the superuser; every value arrives as text. */
  const query = (text: string): Promise<Row[]> => onServer(superuserUrl, text)
  let server: ReturnType<typeof startServer> | undefined
  const startUp = () =>
    eventually('PostgreSQL to start', async () => {
      // It refuses to start while processes of the server that was killed still have its memory.
      if (server === undefined) {
        server = startServer(place, { ...address, ...settings })
        void server.ended.then(() => (server = undefined))
      }
      return (await query('SELECT').catch(() => undefined)) !== undefined
    })
  const firstProcess = async (): Promise<number> =>
    Number((await readFile(path.join(data, 'postmaster.pid'), 'utf8')).split('\n')[0])
  /** Signals all of its processes: first the one that starts others. */
  const signalAll = async (name: NodeJS.Signals): Promise<void> => {
    const first = await firstProcess()
    process.kill(first, name)
    await run('pkill', [`-${name.slice(3)}`, '-P', String(first)])
  }
  t.teardown(async () => {
    // It may be suspended, or have ended.
    await signalAll('SIGCONT').catch(() => {})
    await server?.stop()
  })
  await startUp()
  return {
    /** The database `postgres` for the service's role; the same after every start. */
    url: superuserUrl.replace('postgres@', `${SERVICE}@`),
    superuserUrl,
    port,
    data,
    query,
    start: startUp,
    stop: async () => server?.stop(),
    /** Ends its first process with SIGKILL; its children end once they notice. */
    async kill() {
      process.kill(await firstProcess(), 'SIGKILL')
      await server?.ended
    },
    /** Ends one of the others with SIGKILL, upon which it ends all of them and restarts. Resolves when it has. */
    async crash() {
      const writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
      const [before] = await query(writer)
      process.kill(Number(before?.['pid']), 'SIGKILL')
      await eventually('PostgreSQL to restart', async () => {
        const [now] = await query(writer).catch(() => [])
        return now !== undefined && now['pid'] !== before?.['pid']
      })
    },
    /** Starts it, after a stop, as a standby of another server. */
    async follow(primary: { readonly port: number }) {
      await makeStandby(data, primary)
      await startUp()
    },
    /** Has commits wait for a standby of that name, or for none if it is empty. */
    async waitForStandby(name: string) {
      await query(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`)
      await query('SELECT pg_reload_conf()')
      const setting = 'SHOW synchronous_standby_names'
      await eventually('the setting to be read', async () =>
        (await query(setting)).some((row) => row['synchronous_standby_names'] === name),
      )
      // It is the checkpointer that has commits wait, once it has read the setting, which it does before a checkpoint.
      await query('CHECKPOINT')
    },
    /** Halts all of its processes, wherever they are, until `resume`. */
    suspend: () => signalAll('SIGSTOP'),
    resume: () => signalAll('SIGCONT'),
  }
}
