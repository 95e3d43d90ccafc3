import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import t, { type Test } from 'tap'
import { migrate } from '../../src/database/migrate.ts'
import { ENTRY_JSON } from '../../src/inventory/entry/columns.ts'
import { giveTo, serverAccount } from '../support/account.ts'
import { longTimings, startApp } from '../support/app.ts'
import { startInstalled, startOwnServer } from '../support/own-server.ts'
import { randomChanges } from '../support/random-changes.ts'
import { programsOf } from './needs.ts'

const run = promisify(execFile)

/** `STEPS=20000 SEED=7 npm run test:faults -- test/faults/list-histories.fault.ts` tries others, and more of them. */
const { STEPS = '2000', SEED = '1' } = process.env

const { random, pick, change, withSavepoints } = randomChanges(Number(SEED))

const ROLE = 'service'

const TABLE = `(pet_id bigint PRIMARY KEY, quantity integer NOT NULL, status text NOT NULL DEFAULT 'available')`

/** What the name `inventory` may stand for. Each begins with the rows in the temporary table `kept`. */
const kinds = [
  `CREATE TABLE inventory ${TABLE}; INSERT INTO inventory TABLE kept`,
  `CREATE TABLE inventory ${TABLE}; INSERT INTO inventory TABLE kept`,
  `CREATE UNLOGGED TABLE inventory ${TABLE}; INSERT INTO inventory TABLE kept`,
  `CREATE TABLE inventory AS TABLE kept`,
  `CREATE TABLE stock ${TABLE}; INSERT INTO stock TABLE kept; CREATE VIEW inventory AS SELECT * FROM stock`,
  `CREATE TABLE stock ${TABLE}; INSERT INTO stock TABLE kept; CREATE MATERIALIZED VIEW inventory AS SELECT * FROM stock`,
  `CREATE TABLE inventory (LIKE kept) PARTITION BY HASH (pet_id);
   CREATE TABLE one PARTITION OF inventory FOR VALUES WITH (MODULUS 2, REMAINDER 0);
   CREATE TABLE other PARTITION OF inventory FOR VALUES WITH (MODULUS 2, REMAINDER 1); INSERT INTO inventory TABLE kept`,
  `CREATE TABLE inventory ${TABLE}; CREATE TABLE more () INHERITS (inventory); INSERT INTO more TABLE kept`,
] as const

/** In the schema that is always searched, so that the name never stands for nothing. */
const newKind = (): string => `
  SET LOCAL search_path = public;
  CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT pet_id, quantity::integer, status::text FROM inventory;
  DO $$ BEGIN EXECUTE (SELECT format('DROP %s inventory CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN
    'MATERIALIZED VIEW' ELSE 'TABLE' END) FROM pg_class WHERE oid = 'inventory'::regclass); END $$;
  DROP TABLE IF EXISTS stock, more, one, other CASCADE; ${pick(kinds)}`

const definitions = [
  newKind,
  newKind,
  () => 'ALTER TABLE inventory ADD COLUMN noted timestamptz DEFAULT clock_timestamp()',
  () => 'ALTER TABLE inventory DROP COLUMN noted',
  () => `ALTER TABLE inventory ALTER quantity TYPE ${pick(['bigint', 'integer', 'smallint', 'numeric'])}`,
  () => `ALTER TABLE inventory ALTER status TYPE ${pick(['text', 'varchar', 'varchar(20)'])}`,
  () =>
    "ALTER TABLE inventory RENAME status TO was; ALTER TABLE inventory ADD status text NOT NULL DEFAULT 'sold'",
  () => 'ALTER TABLE inventory DROP COLUMN was',
  () => 'ALTER TABLE inventory DROP CONSTRAINT inventory_pkey',
  () => 'ALTER TABLE inventory ADD CONSTRAINT inventory_pkey PRIMARY KEY (pet_id)',
  () => 'ALTER TABLE inventory ADD CONSTRAINT inventory_pkey PRIMARY KEY (pet_id) DEFERRABLE',
  () => `CREATE OR REPLACE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF pg_trigger_depth() < 2 THEN UPDATE inventory SET quantity = new.quantity WHERE pet_id = new.pet_id + 1; END IF;
      RETURN new; END $$;
    CREATE OR REPLACE TRIGGER follow AFTER UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION follow()`,
  () => 'DROP TRIGGER IF EXISTS follow ON inventory',
  () => 'DROP POLICY IF EXISTS half ON inventory; CREATE POLICY half ON inventory USING (quantity % 2 = 0)',
  () => `ALTER TABLE inventory ${pick(['ENABLE', 'DISABLE', 'DISABLE'])} ROW LEVEL SECURITY`,
  () => `CREATE SCHEMA IF NOT EXISTS nearer; GRANT USAGE ON SCHEMA nearer TO ${ROLE};
    CREATE TABLE nearer.inventory ${TABLE}; INSERT INTO nearer.inventory SELECT n, 1, 'sold' FROM generate_series(1, 50) n;
    GRANT SELECT ON nearer.inventory TO ${ROLE}`,
  () => 'UPDATE nearer.inventory SET quantity = quantity + 1 WHERE pet_id = 7',
  () => 'DROP TABLE nearer.inventory',
  () => 'ALTER SCHEMA nearer RENAME TO farther',
  () => 'ALTER SCHEMA farther RENAME TO nearer',
  () => `REFRESH MATERIALIZED VIEW inventory`,
  () => 'TRUNCATE inventory',
] as const

/** Cannot run in a transaction. */
const alone = [
  'VACUUM inventory',
  'VACUUM FULL inventory',
  'VACUUM (FREEZE) inventory',
  'CLUSTER inventory USING inventory_pkey',
  'ALTER SYSTEM SET search_path = nearer, public',
  'ALTER SYSTEM SET search_path = public',
] as const

const FIRST_ENTRIES = `INSERT INTO inventory SELECT n, n % 100, 'sold' FROM generate_series(1, 2500) n`

/** Changes the table in `steps` steps, and compares the lists of two processes with SQL after each. */
async function compareLists(
  t: Test,
  server: { readonly url: string; readonly superuserUrl: string },
  steps: number,
): Promise<void> {
  const open = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, options: '-c lock_timeout=50ms' })
    await client.connect()
    t.teardown(() => client.end())
    return client
  }
  const main = await open(server.superuserUrl)
  const other = await open(server.superuserUrl)
  const reader = await open(server.url)
  const apps = await Promise.all([
    startApp(t, server.url, { timings: longTimings }),
    startApp(t, server.url, { timings: longTimings, env: { DATABASE_POOLER: 'transaction' } }),
  ])
  let rejected = 0
  const run = async (client: pg.Client, text: string): Promise<void> => {
    try {
      await client.query(text)
    } catch (error) {
      if (!(error instanceof pg.DatabaseError)) throw error
      rejected++
      await client.query('ROLLBACK')
    }
  }
  let isOpen = false
  let prepared: string[] = []

  const step = async (index: number): Promise<string> => {
    const kind = random(100)
    let client = main
    let text = `BEGIN; ${pick([change, withSavepoints])()}; ${pick(['COMMIT', 'COMMIT', 'ROLLBACK'])}`
    if (kind >= 82) {
      text = `BEGIN; ${pick(definitions)()}; GRANT SELECT, UPDATE ON inventory TO ${ROLE}; COMMIT`
    } else if (kind >= 74) {
      text = pick(alone)
    } else if (kind >= 66 || (kind >= 60 && prepared.length > 2)) {
      const [gid] = prepared
      text = gid === undefined ? 'SELECT 1' : `${pick(['COMMIT', 'ROLLBACK'])} PREPARED '${gid}'`
    } else if (kind >= 60) {
      text = `BEGIN; ${withSavepoints()}; PREPARE TRANSACTION 'step_${index}'`
    } else if (kind >= 45) {
      client = other
      text = isOpen ? pick(['COMMIT', 'ROLLBACK', change()]) : `BEGIN; ${change()}`
    }
    await run(client, text)
    isOpen = (await other.query('SELECT now() <> statement_timestamp() AS open')).rows[0]?.open === true
    prepared = (await main.query('SELECT gid FROM pg_prepared_xacts')).rows.map(({ gid }) => gid)
    await main.query('SELECT pg_reload_conf()')
    // Each session takes the new setting before its next statement, once the signal has arrived.
    if (text.startsWith('ALTER SYSTEM')) await setTimeout(200)
    return text
  }

  let compared = 0
  for (let index = 0; index < steps; index++) {
    const what = await step(index)
    const { rows } = await reader.query<{ list: string; hides: boolean }>(
      `SELECT '[' || coalesce(string_agg(${ENTRY_JSON}, ',' ORDER BY pet_id), '') || ']' AS list,
              row_security_active('inventory') AS hides FROM inventory`,
    )
    const [{ list: expected, hides } = { list: undefined, hides: false }] = rows
    for (const [process, { send }] of apps.entries()) {
      const { status, text } = await send('GET', '/v1/inventory')
      compared++
      if (status === 200 && text === expected) continue
      // Rather no list than one from which row security hides entries.
      if (status === 503 && hides) continue
      const difference = differenceOf(text, expected ?? '')
      t.fail(`process ${process}, step ${index} of seed ${SEED}: ${status} after ${what}\n${difference}`)
      return
    }
  }
  await other.query('ROLLBACK')
  for (const gid of prepared) await main.query(`ROLLBACK PREPARED '${gid}'`)
  t.ok(rejected < steps / 2, `${rejected} of ${steps} steps were rejected`)
  t.comment(`${compared} lists, none different; ${rejected} of ${steps} steps were rejected`)
}

/** Describes the first entry in which two lists differ. */
function differenceOf(text: string, expected: string): string {
  const [actual, wanted] = [text, expected].map((list) => list.split('},'))
  const index = wanted?.findIndex((entry, at) => entry !== actual?.[at]) ?? 0
  return `${actual?.length} entries for ${wanted?.length}; the first different is ${actual?.[index]} for ${wanted?.[index]}`
}

t.test('every list is what SQL says, in every process, through any history of the table', async (t) => {
  const server = await startOwnServer(t, { max_prepared_transactions: '20' })
  await server.query(FIRST_ENTRIES)
  await compareLists(t, server, Number(STEPS))
})

/** The transaction id that a server begins with is as high as this at least. */
const JUMP = 2n ** 30n

/** Transactions of the history before an id that rows, snapshots or the function `age` represent in another way. */
const BEFORE = 100n

const clusterFiles = {
  /** Transactions in one file of `pg_xact`, which has two bits for each. */
  transactions: 2n ** 20n,
  bytes: 2 ** 18,
}

t.test('every list is what SQL says while transaction ids exceed 2^31, 2^32 and 2^33', async (t) => {
  // The embedded server comes without pg_resetwal.
  const programs = (await programsOf(15)) ?? ''
  const settings = { fsync: 'off', max_prepared_transactions: '20', autovacuum: 'off' }
  const server = await startInstalled(t, programs, settings)
  const { query, data } = server
  const nextId = async (): Promise<bigint> =>
    BigInt((await query('SELECT pg_current_xact_id() AS id'))[0]?.['id'] ?? 0)
  await migrate({ url: server.superuserUrl, direction: 'up' })
  await query(
    `CREATE ROLE ${ROLE} LOGIN; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${ROLE};
     UPDATE pg_database SET datistemplate = false; ${FIRST_ENTRIES}`,
  )
  // PostgreSQL stops when the oldest row of any database is too old.
  for (const database of ['template0', 'template1']) await query(`DROP DATABASE ${database}`)

  /** Makes the server begin with a transaction id. Rows must not be older than 2^31 transactions, so this goes in steps. */
  const setNextId = async (id: bigint): Promise<void> => {
    await query('VACUUM (FREEZE)')
    await server.stop()
    const segment = (BigInt.asUintN(32, id) / clusterFiles.transactions).toString(16).toUpperCase()
    const file = path.join(data, 'pg_xact', segment.padStart(4, '0'))
    await writeFile(file, Buffer.alloc(clusterFiles.bytes))
    await giveTo(serverAccount(), file)
    const options = [`-e${id >> 32n}`, `-x${BigInt.asUintN(32, id)}`, data]
    await run(path.join(programs, 'bin', 'pg_resetwal'), options, serverAccount())
    await server.start()
    await query('VACUUM (FREEZE)')
  }

  let next = 0n
  for (const limit of [2n ** 31n, 2n ** 32n, 2n ** 33n]) {
    await t.test(`2^${limit.toString(2).length - 1}`, async (t) => {
      while (next + JUMP < limit - 2n * BEFORE) {
        next += JUMP
        await setNextId(next)
      }
      next = limit - 2n * BEFORE
      await setNextId(next)
      while ((await nextId()) < limit - BEFORE);
      await compareLists(t, server, Number(STEPS) / 8)
      t.ok((await nextId()) > limit, 'the ids of transactions have exceeded it')
      next = limit
    })
  }
})
