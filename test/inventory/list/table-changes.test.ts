import pg from 'pg'
import t, { type Test } from 'tap'
import { listLimits } from '../../../src/database/pool-options.ts'
import { ENTRY_JSON } from '../../../src/inventory/entry/columns.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { startApp } from '../../support/app.ts'
import { onServer } from '../../support/on-server.ts'
import { startOwnServer } from '../../support/own-server.ts'

/** What the service reads for a list: all entries, the changed ones, or none. */
type Read = 'read' | 'changed' | 'unchanged'

interface Case {
  /** Statements that are executed before the list is cached. */
  readonly before?: string
  readonly change: string
  /** What the next list reads. */
  readonly reads: Read
  /** Whether the list after that reads no entry. */
  readonly isReused: boolean
}

// Nobody else commits here, so a list that may be reused is reused.
const server = await startOwnServer(t, { autovacuum: 'off' })
await server.query(`ALTER DATABASE postgres SET search_path = nearer, shop, public;
  ALTER DEFAULT PRIVILEGES GRANT SELECT, UPDATE ON TABLES TO ${server.role}; CREATE EXTENSION file_fdw`)

/** Replaces the table by one of 40 entries in a schema of its own. */
async function reset(): Promise<void> {
  await server.query(`DROP SCHEMA IF EXISTS shop, nearer CASCADE; CREATE SCHEMA shop; CREATE SCHEMA nearer;
    GRANT USAGE ON SCHEMA shop, nearer TO ${server.role};
    CREATE TABLE shop.inventory (LIKE public.inventory INCLUDING ALL);
    INSERT INTO shop.inventory SELECT n, n, 'sold' FROM generate_series(1, 40) n`)
}

await reset()
const statistics = new InventoryStatistics()
const { send } = await startApp(t, server.url, {
  app: { inventoryStatistics: statistics },
  timings: { lists: { ...listLimits, lock: 300 } },
})

/** The entries of a list, sorted, as two with the same id may come in any order. */
const entriesOf = (list = ''): string[] =>
  list
    .slice(1, -1)
    .split(/(?<=}),/)
    .sort()

/** Asserts that the list is what SQL says, and returns what the service has read for it. */
async function listIsExact(t: Test, title: string): Promise<Read | undefined> {
  const [row] = await onServer(
    server.url,
    `SELECT '[' || coalesce(string_agg(${ENTRY_JSON}, ',' ORDER BY pet_id), '') || ']' AS list FROM inventory`,
  )
  const before = { ...statistics.lists }
  const { status, text } = await send('GET', '/v1/inventory')
  t.equal(status, 200, title)
  t.strictSame(entriesOf(text), entriesOf(row?.['list'] ?? ''), title)
  return (['read', 'changed', 'unchanged'] as const).find((kind) => statistics.lists[kind] > before[kind])
}

const read: Pick<Case, 'reads' | 'isReused'> = { reads: 'read', isReused: true }
const readEachTime: Pick<Case, 'reads' | 'isReused'> = { reads: 'read', isReused: false }

const cases: Readonly<Record<string, Case>> = {
  'no commit': { change: 'SELECT 1', reads: 'unchanged', isReused: true },
  'an update in a list of several pieces': {
    before: "INSERT INTO inventory SELECT n, n, 'sold' FROM generate_series(41, 3000) n",
    change: "UPDATE inventory SET quantity = 0, status = 'pending' WHERE pet_id = 3000",
    reads: 'changed',
    isReused: true,
  },
  'a new entry': { change: "INSERT INTO inventory VALUES (-7, 1, 'sold')", ...read },
  'a table that is found first': {
    before: "INSERT INTO inventory SELECT n, n, 'sold' FROM generate_series(41, 3000) n",
    change: `CREATE TABLE nearer.inventory (LIKE shop.inventory INCLUDING ALL);
      INSERT INTO nearer.inventory SELECT pet_id, quantity + 1, status FROM shop.inventory`,
    ...read,
  },
  'columns that exchange their names': {
    before: 'ALTER TABLE inventory ADD spare integer DEFAULT 9',
    change: `BEGIN; ALTER TABLE inventory RENAME quantity TO former;
      ALTER TABLE inventory RENAME spare TO quantity; COMMIT`,
    ...read,
  },
  'a status whose type changes its text': {
    before: `CREATE TYPE shop.state AS ENUM ('available', 'pending', 'sold');
      ALTER TABLE inventory DROP CONSTRAINT inventory_status_check;
      ALTER TABLE inventory ALTER status DROP DEFAULT, ALTER status TYPE state USING status::state`,
    change: "ALTER TYPE state RENAME VALUE 'sold' TO 'gone'",
    ...readEachTime,
  },
  'a primary key of two columns': {
    before: `ALTER TABLE inventory DROP CONSTRAINT inventory_pkey, ADD PRIMARY KEY (pet_id, status)`,
    change: "DELETE FROM inventory WHERE pet_id = 2; INSERT INTO inventory VALUES (1, 3, 'pending')",
    ...readEachTime,
  },
  'a view': {
    change: 'ALTER TABLE inventory RENAME TO stock; CREATE VIEW shop.inventory AS SELECT * FROM stock',
    ...readEachTime,
  },
  'a foreign table': {
    change: `COPY inventory TO '${server.data}/stock.csv' (FORMAT csv); DROP TABLE inventory;
      CREATE SERVER IF NOT EXISTS files FOREIGN DATA WRAPPER file_fdw;
      CREATE FOREIGN TABLE shop.inventory (pet_id bigint, quantity integer, status text)
        SERVER files OPTIONS (filename '${server.data}/stock.csv', format 'csv')`,
    ...readEachTime,
  },
}

for (const [title, { before = 'SELECT 1', change, reads, isReused }] of Object.entries(cases)) {
  t.test(`the list is exact after ${title}`, async (t) => {
    await reset()
    await server.query(before)
    await listIsExact(t, 'before')
    await listIsExact(t, 'before, once more')
    await server.query(change)
    t.equal(await listIsExact(t, 'after it'), reads, 'what is read then')
    t.equal(await listIsExact(t, 'without a further commit'), isReused ? 'unchanged' : 'read')
  })
}

t.test(
  'a list without a commit since the last one needs no lock, also if changes are expected',
  async (t) => {
    await reset()
    await listIsExact(t, 'all entries')
    await server.query('UPDATE inventory SET quantity = 7 WHERE pet_id = 1')
    t.equal(await listIsExact(t, 'a change'), 'changed')
    const holder = new pg.Client({ connectionString: server.superuserUrl })
    await holder.connect()
    t.teardown(() => holder.end())
    await holder.query('BEGIN; LOCK TABLE inventory')
    t.equal((await send('GET', '/v1/inventory')).status, 503, 'changes are read at once')
    t.match(await send('GET', '/v1/inventory'), { status: 200, text: '"quantity":7' })
  },
)
