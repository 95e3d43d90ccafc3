import { chmod, writeFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import t, { type Test } from 'tap'
import { listLimits } from '../../../src/database/pool/pool.ts'
import type { AppOptions } from '../../../src/http/app.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import type { ServiceTimings } from '../../../src/service.ts'
import { startApp, type TestApp } from '../../support/app.ts'
import { eventually } from '../../support/eventually.ts'
import { startOwnServer } from '../../support/own-server.ts'
import { temporaryFolder } from '../../support/program.ts'

// Nobody else commits here, so a list that may be reused is reused.
const server = await startOwnServer(t, { autovacuum: 'off' })
await server.query('CREATE TABLE model (LIKE inventory INCLUDING ALL)')

/**
 * Fills the table and starts the service. Only the first two entries matter: the others, which `list` omits, make the list
 * long enough for changes to be read.
 */
const setUp = async (
  t: Test,
  options: Partial<AppOptions> = {},
  timings: Partial<ServiceTimings> = {},
): Promise<{ app: TestApp; list: () => Promise<string> }> => {
  await server.query(`DROP TABLE inventory CASCADE;
    CREATE TABLE inventory (LIKE model INCLUDING ALL);
    GRANT SELECT ON inventory TO ${server.role};
    INSERT INTO inventory VALUES (1, 1, 'available'), (2, 2, 'sold');
    INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(101, 109) AS n`)
  const app = await startApp(t, server.url, { app: options, timings })
  const list = async (): Promise<string> =>
    (await app.send('GET', '/v1/inventory')).text.replace(/,?{"petId":10\d,[^}]*}/g, '')
  return { app, list }
}

const first = '{"petId":1,"quantity":1,"status":"available"}'
const second = '{"petId":2,"quantity":2,"status":"sold"}'

const connect = async (t: Test, url: string): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  return client
}

t.test('a list without a commit since the last one counts as unchanged, also after a change', async (t) => {
  const inventoryStatistics = new InventoryStatistics()
  const { list } = await setUp(t, { inventoryStatistics })
  await server.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(3, 9) AS n")
  await list()
  await list()
  await server.query('UPDATE inventory SET quantity = 7 WHERE pet_id = 9')
  await list()
  await list()
  t.match(inventoryStatistics.lists, { read: 1, changed: 1, unchanged: 2 })
})

t.test(
  'a list without a commit since the last one needs no lock, also if changes are expected',
  async (t) => {
    const { app, list } = await setUp(t, {}, { lists: { ...listLimits, lock: 300 } })
    await server.query(`GRANT UPDATE ON inventory TO ${server.role}`)
    await list()
    await server.query('UPDATE inventory SET quantity = 7 WHERE pet_id = 1')
    const changed = await list()
    const holder = await connect(t, server.url)
    await holder.query('BEGIN; LOCK TABLE inventory')
    t.equal((await app.send('GET', '/v1/inventory')).status, 503, 'changes are read at once')
    t.equal(await list(), changed)
    await holder.query('ROLLBACK')
  },
)

t.test('row security that depends on more than the rows is asked each time', async (t) => {
  const { list } = await setUp(t)
  t.equal(await list(), `[${first},${second}]`)
  // Whether someone holds a lock changes without a commit, as the time does.
  await server.query(`ALTER TABLE inventory ENABLE ROW LEVEL SECURITY;
    CREATE POLICY visible ON inventory USING (
      pet_id = 1 OR NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711))`)
  t.equal(await list(), `[${first},${second}]`)
  const holder = await connect(t, server.url)
  await holder.query('SELECT pg_advisory_lock(4711)')
  t.equal(await list(), `[${first}]`)
  await holder.query('SELECT pg_advisory_unlock(4711)')
  t.equal(await list(), `[${first},${second}]`)
})

t.test('a search path that a reload changes leads to the other table', async (t) => {
  const { list } = await setUp(t)
  await server.query(`CREATE SCHEMA other;
    CREATE TABLE other.inventory (LIKE public.inventory INCLUDING ALL);
    INSERT INTO other.inventory VALUES (2, 2, 'sold');
    GRANT USAGE ON SCHEMA other TO ${server.role};
    GRANT SELECT ON other.inventory TO ${server.role}`)
  t.equal(await list(), `[${first},${second}]`)
  await server.query('ALTER SYSTEM SET search_path = other')
  await server.query('SELECT pg_reload_conf()')
  await eventually(
    'a list of the table that the new search path finds',
    async () => (await list()) === `[${second}]`,
  )
  await server.query('ALTER SYSTEM RESET search_path')
  await server.query('SELECT pg_reload_conf()')
  await eventually('a list of the first table again', async () => (await list()) === `[${first},${second}]`)
})

t.test('a table that comes to be found first is the one that is listed, as are its changes', async (t) => {
  const { list } = await setUp(t)
  await server.query(`CREATE SCHEMA nearer; GRANT USAGE ON SCHEMA nearer TO ${server.role}`)
  await server.query('ALTER SYSTEM SET search_path = nearer, public')
  await server.query('SELECT pg_reload_conf()')
  t.teardown(async () => {
    await server.query('ALTER SYSTEM RESET search_path')
    await server.query('SELECT pg_reload_conf()')
    await server.query('DROP SCHEMA nearer CASCADE')
  })
  // PostgreSQL has parsed every statement of the connection for the first table.
  t.equal(await list(), `[${first},${second}]`)
  await server.query('UPDATE public.inventory SET quantity = quantity WHERE pet_id = 1')
  t.equal(await list(), `[${first},${second}]`)
  await server.query(`CREATE TABLE nearer.inventory (LIKE public.inventory INCLUDING ALL);
    INSERT INTO nearer.inventory TABLE public.inventory;
    GRANT SELECT ON nearer.inventory TO ${server.role}`)
  t.equal(await list(), `[${first},${second}]`)
  await server.query('UPDATE nearer.inventory SET quantity = 7 WHERE pet_id = 1')
  t.equal(await list(), `[{"petId":1,"quantity":7,"status":"available"},${second}]`)
})

t.test('a primary key that is dropped and added again hides no second entry with an id', async (t) => {
  const { list } = await setUp(t)
  t.equal(await list(), `[${first},${second}]`)
  await server.query('UPDATE inventory SET quantity = quantity WHERE pet_id = 1')
  t.equal(await list(), `[${first},${second}]`)
  await server.query('ALTER TABLE inventory DROP CONSTRAINT inventory_pkey')
  // As many entries as before.
  await server.query(
    "DELETE FROM inventory WHERE pet_id = 2; INSERT INTO inventory VALUES (1, 1, 'available')",
  )
  t.equal(await list(), `[${first},${first}]`)
  await server.query(
    "DELETE FROM inventory WHERE pet_id = 1; INSERT INTO inventory VALUES (1, 1, 'available'), (2, 2, 'sold')",
  )
  await server.query('ALTER TABLE inventory ADD PRIMARY KEY (pet_id)')
  t.equal(await list(), `[${first},${second}]`)
})

for (const key of ['pet_id, status', 'place']) {
  t.test(`a table with the primary key (${key}) is listed as it is`, async (t) => {
    const { list } = await setUp(t)
    await server.query(`ALTER TABLE inventory ADD place integer GENERATED ALWAYS AS IDENTITY,
      DROP CONSTRAINT inventory_pkey, ADD PRIMARY KEY (${key})`)
    t.equal(await list(), `[${first},${second}]`)
    // As many entries as before.
    await server.query("DELETE FROM inventory WHERE pet_id = 2; INSERT INTO inventory VALUES (1, 3, 'sold')")
    const both = [first, '{"petId":1,"quantity":3,"status":"sold"}']
    t.strictSame(
      JSON.parse(await list())
        .map(JSON.stringify)
        .sort(),
      both,
    )
  })
}

t.test('a status of another type is listed as the type says now', async (t) => {
  const { list } = await setUp(t)
  await server.query(`CREATE TYPE state AS ENUM ('available', 'pending', 'sold');
    ALTER TABLE inventory DROP CONSTRAINT inventory_status_check;
    ALTER TABLE inventory ALTER status DROP DEFAULT, ALTER status TYPE state USING status::state`)
  t.equal(await list(), `[${first},${second}]`)
  // Changes the text of an entry, but not its row.
  await server.query("ALTER TYPE state RENAME VALUE 'sold' TO 'gone'")
  t.equal(await list(), `[${first},${second.replace('sold', 'gone')}]`)
  await server.query('DROP TYPE state CASCADE')
})

t.test('columns that exchange their names exchange their values', async (t) => {
  const { list } = await setUp(t)
  await server.query('ALTER TABLE inventory ADD spare integer DEFAULT 9')
  t.equal(await list(), `[${first},${second}]`)
  await server.query('UPDATE inventory SET quantity = quantity WHERE pet_id = 1')
  t.equal(await list(), `[${first},${second}]`)
  await server.query(`BEGIN; ALTER TABLE inventory RENAME quantity TO former;
    ALTER TABLE inventory RENAME spare TO quantity; COMMIT`)
  t.equal(await list(), `[${first.replace(':1,"s', ':9,"s')},${second.replace(':2,"s', ':9,"s')}]`)
})

t.test(
  'children that come while the service runs are listed, and so is what is written to them',
  async (t) => {
    const { app, list } = await setUp(t)
    t.equal(await list(), `[${first},${second}]`)
    await server.query(`CREATE TABLE more () INHERITS (inventory); GRANT SELECT ON more TO ${server.role}`)
    t.equal(await list(), `[${first},${second}]`)
    await server.query("INSERT INTO more VALUES (3, 3, 'sold')")
    t.equal(await list(), `[${first},${second},{"petId":3,"quantity":3,"status":"sold"}]`)
    const logged = app.log.flatMap(({ comparable }) => comparable ?? [])
    t.strictSame(logged, [true, false], 'the log has each change once')
  },
)

t.test(
  'a list that is asked for before there is a table does not keep later ones from being reused',
  async (t) => {
    const { app, list } = await setUp(t)
    await server.query('ALTER TABLE inventory RENAME TO away')
    t.equal((await app.send('GET', '/v1/inventory')).status, 503)
    await server.query('ALTER TABLE away RENAME TO inventory')
    t.equal(await list(), `[${first},${second}]`)
    t.match(app.log.filter(({ comparable }) => comparable !== undefined).at(-1), { comparable: true })
  },
)

t.test('a table that becomes a foreign one while the service runs is read each time', async (t) => {
  const { list } = await setUp(t)
  t.equal(await list(), `[${first},${second}]`)
  const folder = await temporaryFolder(t)
  const file = path.join(folder, 'stock.csv')
  await chmod(folder, 0o755)
  await writeFile(file, '1,1,available\n2,2,sold\n')
  await server.query(`CREATE EXTENSION file_fdw;
    CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
    DROP TABLE inventory;
    CREATE FOREIGN TABLE inventory (pet_id bigint, quantity integer, status text)
      SERVER files OPTIONS (filename '${file}', format 'csv');
    GRANT SELECT ON inventory TO ${server.role}`)
  t.equal(await list(), `[${first},${second}]`)
  // A change that is no commit of this server.
  await writeFile(file, '1,1,available\n')
  t.equal(await list(), `[${first}]`)
})
