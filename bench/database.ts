import { randomInt } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { migrate } from '../src/database/migrate.ts'
import { ENTRY_JSON } from '../src/inventory/entry/columns.ts'
import { startEmbeddedServer } from '../src/local/embedded.ts'
import { createServerFolder } from '../src/local/folder.ts'

/** The entry that `change` changes; its status is `available`. */
export const changedPet = 3

/** Full durability, and larger sizes than the defaults, which are for very small machines. */
const settings = {
  fsync: 'on',
  synchronous_commit: 'on',
  max_connections: '400',
  shared_buffers: '512MB',
  max_wal_size: '4GB',
}

/** A PostgreSQL server with the inventory, for all contenders. */
export interface BenchDatabase {
  readonly url: string
  readonly version: string
  /** The process whose children are the server's. */
  readonly pid: number
  /** Replaces all entries with `entries` new ones, with ids from 1. */
  fill(entries: number): Promise<void>
  /** Restores the quantities that `fill` set, and removes the row versions that updates left behind. */
  reset(): Promise<void>
  /** Changes the quantity of `changedPet`, and returns the new one. */
  change(): Promise<number>
  /** Returns the body of a correct list response, byte for byte. */
  list(): Promise<string>
  stop(): Promise<void>
}

/** Starts a server with its data in a folder, which must be on a disk: in memory, commits would cost nothing. */
export async function startDatabase(directory: string): Promise<BenchDatabase> {
  const folder = await createServerFolder(path.join(directory, 'postgres'))
  const server = await startEmbeddedServer(folder, settings)
  await migrate({ url: server.url, direction: 'up' })
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  const { rows } = await client.query<{ version: string }>(
    "SELECT current_setting('server_version') AS version",
  )
  const [pid] = (await readFile(path.join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')
  return {
    url: server.url,
    version: rows[0]?.version ?? '',
    pid: Number(pid),
    async fill(entries) {
      await client.query('TRUNCATE inventory')
      await client.query(
        `INSERT INTO inventory (pet_id, quantity, status)
         SELECT id, id % 1000, (ARRAY['available', 'pending', 'sold'])[1 + id % 3] FROM generate_series(1, $1::bigint) id`,
        [entries],
      )
      await client.query('VACUUM ANALYZE inventory')
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
      return rows[0]?.list ?? ''
    },
    async stop() {
      await client.end()
      await server.stop()
    },
  }
}
