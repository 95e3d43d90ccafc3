import { randomBytes, randomInt } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { migrate } from '../src/database/migrations/migrate.ts'
import { ENTRY_JSON } from '../src/inventory/entry/columns.ts'
import { startEmbeddedServer } from '../src/local/embedded.ts'
import { onServer, urlOf } from '../test/support/template.ts'
import { cpuSecondsOf } from './cpu.ts'

/** A database that contenders use. */
export interface BenchDatabase {
  readonly url: string
  /** Address of another database of the same server. */
  readonly otherUrl: string
  /** The server's version, and its settings for the durability of commits. */
  readonly description: string
  /** The server's `max_connections`. */
  readonly maxConnections: number
  /** Replaces all entries with `entries` new ones, with ids from 1. */
  fill(entries: number): Promise<void>
  /** Waits until no other session has run a statement for a moment. */
  quiet(): Promise<void>
  /** Restores the quantities that `fill` set, and removes the row versions that updates left behind. */
  reset(): Promise<void>
  /** Changes the quantity of `changedPet`, and returns the new one. */
  change(): Promise<number>
  /** Returns the body of a correct list response, byte for byte. */
  list(): Promise<Buffer>
  /** Returns PostgreSQL's CPU time since its start in seconds, or undefined if it is on another machine. */
  cpuSeconds(): Promise<number | undefined>
  stop(): Promise<void>
}

/** The entry that `change` changes; its status is `available`. */
export const changedPet = 3

/** Reads the whole list as text, one entry per line, with about as many bytes as the response. */
export const COPY_LIST = `COPY (SELECT ${ENTRY_JSON} FROM inventory ORDER BY pet_id) TO STDOUT`

/** Settings of a production server: full durability, and higher values for sizes whose defaults are for very small machines. */
export const settings = {
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  max_connections: '400',
  shared_buffers: '512MB',
  max_wal_size: '4GB',
}

/** Creates a database on the server at `DATABASE_URL`, or on an embedded server with its data in `directory`. */
export async function openBenchDatabase(directory: string): Promise<BenchDatabase> {
  const given = process.env['DATABASE_URL']
  const server = given ? { url: given, stop: async () => {} } : await startEmbedded(directory)
  const name = `bench_${randomBytes(6).toString('hex')}`
  await onServer(server.url, `CREATE DATABASE ${name}`)
  const url = urlOf(server.url, name)
  await migrate({ url, direction: 'up' })
  const database = await benchDatabase({
    url,
    otherUrl: server.url,
    where: given ? 'at DATABASE_URL' : 'embedded',
    ...('data' in server && { data: server.data }),
  })
  return {
    ...database,
    async stop() {
      await database.stop()
      await onServer(server.url, `DROP DATABASE ${name} WITH (FORCE)`)
      await server.stop()
    },
  }
}

interface BenchDatabaseOptions {
  /** Address of a migrated database, for a role with all privileges. */
  readonly url: string
  readonly otherUrl: string
  /** Where the server is, for the description. */
  readonly where: string
  /** The server's data directory, if it runs on this machine. */
  readonly data?: string
}

/** Connects to an existing database. `stop` closes the connection. */
async function benchDatabase({ url, otherUrl, where, data }: BenchDatabaseOptions): Promise<BenchDatabase> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const show = async (setting: string): Promise<string> => {
    const { rows } = await client.query<Record<string, string>>(`SHOW ${setting}`)
    return rows[0]?.[setting] ?? ''
  }
  const values: string[] = []
  for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size'])
    values.push(`${setting} = ${await show(setting)}`)

  return {
    url,
    otherUrl,
    description: `PostgreSQL ${await show('server_version')}, ${where}, ${values.join(', ')}`,
    maxConnections: Number(await show('max_connections')),
    async fill(entries) {
      await client.query('TRUNCATE inventory')
      await client.query(
        `INSERT INTO inventory (pet_id, quantity, status)
         SELECT id, id % 1000, (ARRAY['available', 'pending', 'sold'])[1 + id % 3] FROM generate_series(1, $1::bigint) id`,
        [entries],
      )
      await client.query('VACUUM ANALYZE inventory')
    },
    async quiet() {
      for (let looks = 0; looks < 3; looks++) {
        const { rows } = await client.query<{ busy: boolean }>(
          `SELECT EXISTS (
             SELECT FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend'
               AND state <> 'idle' AND pid <> pg_backend_pid()
           ) AS busy`,
        )
        if (rows[0]?.busy) looks = -1
        await setTimeout(20)
      }
    },
    async reset() {
      await client.query('UPDATE inventory SET quantity = pet_id % 1000 WHERE quantity <> pet_id % 1000')
      await client.query('VACUUM inventory')
    },
    async change() {
      const quantity = randomInt(1000)
      await client.query('UPDATE inventory SET quantity = $2 WHERE pet_id = $1', [changedPet, quantity])
      return quantity
    },
    async list() {
      const { rows } = await client.query<{ list: string }>(
        `SELECT '[' || string_agg(${ENTRY_JSON}, ',' ORDER BY pet_id) || ']' AS list FROM inventory`,
      )
      return Buffer.from(rows[0]?.list ?? '')
    },
    cpuSeconds: async () => (data === undefined ? undefined : cpuSecondsOfServer(data)),
    stop: () => client.end(),
  }
}

async function startEmbedded(
  directory: string,
): Promise<{ url: string; data: string; stop(): Promise<void> }> {
  const server = await startEmbeddedServer({ directory: path.join(directory, 'postgres'), settings })
  return {
    url: server.url,
    data: path.join(server.directory, 'data'),
    async stop() {
      await server.stop()
      await rm(server.directory, { recursive: true })
    },
  }
}

/** Returns the CPU time of all processes of a PostgreSQL server since its start, in seconds. `data` is its data directory. */
async function cpuSecondsOfServer(data: string): Promise<number> {
  const [pid] = (await readFile(path.join(data, 'postmaster.pid'), 'utf8')).split('\n')
  return (await cpuSecondsOf(Number(pid))) ?? Number.NaN
}
