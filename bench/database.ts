import { randomInt } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { hashApiKey, makeApiKey } from '../src/api-keys/key.ts'
import { createKey } from '../src/api-keys/stored-keys.ts'
import { migrate } from '../src/database/admin/migrate.ts'
import { createTransaction } from '../src/database/admin/transaction.ts'
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

export type BenchDatabase = Awaited<ReturnType<typeof startDatabase>>

/**
 * Starts a PostgreSQL server with the inventory, for all contenders, and its data in a folder, which must be on a disk: in memory,
 * commits would cost nothing.
 */
export async function startDatabase(directory: string) {
  const folder = await createServerFolder(path.join(directory, 'postgres'))
  const server = await startEmbeddedServer(folder, settings)
  await migrate({ url: server.url, direction: 'up' })
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  const database = createTransaction(client)
  const select = async (expression: string): Promise<string> => {
    const [row] = await database.query<{ value: string }>(`SELECT ${expression} AS value`)
    return row?.value ?? ''
  }
  const key = makeApiKey()
  await createKey(database, 'bench', hashApiKey(key))
  const [pid] = (await readFile(path.join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')
  return {
    url: server.url,
    version: await select("current_setting('server_version')"),
    /** An API key that is stored in it, as those of users are. */
    key,
    /** The process whose children are the server's. */
    pid: Number(pid),

    /** Replaces all entries with `entries` new ones, with ids from 1. */
    async fill(entries: number): Promise<void> {
      await database.query('TRUNCATE inventory')
      await database.query(
        `INSERT INTO inventory (pet_id, quantity, status)
         SELECT id, id % 1000, (ARRAY['available', 'pending', 'sold'])[1 + id % 3] FROM generate_series(1, $1::bigint) id`,
        [entries],
      )
      await database.query('VACUUM ANALYZE inventory')
    },

    /** Restores the quantities that `fill` set, and removes the row versions that updates left behind. */
    async reset(): Promise<void> {
      await database.query('UPDATE inventory SET quantity = pet_id % 1000 WHERE quantity <> pet_id % 1000')
      await database.query('VACUUM inventory')
    },

    /** Changes the quantity of `changedPet`, and returns the new one. */
    async change(): Promise<number> {
      const quantity = randomInt(1000)
      await database.query('UPDATE inventory SET quantity = $2 WHERE pet_id = $1', [changedPet, quantity])
      return quantity
    },

    /** Returns the body of a correct list response, byte for byte. */
    list: () =>
      select(
        `(SELECT '[' || string_agg(${ENTRY_JSON}, ',' ORDER BY entry.pet_id) || ']' FROM inventory AS entry)`,
      ),

    async stop(): Promise<void> {
      await client.end()
      await server.stop()
    },
  }
}
