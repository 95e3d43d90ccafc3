import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { Test } from 'tap'
import { tableFault } from '../../../src/database/table-shape.ts'
import { ENTRY_JSON, INVENTORY_TABLE } from '../../../src/inventory/entry/columns.ts'
import { startApp } from '../../support/app.ts'
import type { OwnServer } from '../../support/own-server.ts'
import { SERVICE } from '../../support/own-server.ts'
import { createRandom } from '../../support/random.ts'

/** The steps of a history and its seed: `STEPS=20000 SEED=7` before a command tries others, and more of them. */
const { STEPS = '300', SEED = '1' } = process.env
export const steps = Number(STEPS)

const { random, pick } = createRandom(Number(SEED))

/** An id that may have an entry, or any other. */
const anyId = (): string =>
  pick([
    String(random(4000)),
    String(random(3000)),
    String(-random(100)),
    String(BigInt(random(2 ** 31)) * BigInt(random(2 ** 31)) - 2n ** 60n),
  ])

const anyStatus = (): string => pick(['available', 'pending', 'sold'])

const update = (): string => `UPDATE inventory SET quantity = ${random(1000)} WHERE pet_id = ${anyId()}`
const updateMany = (): string =>
  `UPDATE inventory SET quantity = quantity + 1 WHERE pet_id % ${50 + random(400)} = ${random(50)}`
const setStatus = (): string => `UPDATE inventory SET status = '${anyStatus()}' WHERE pet_id = ${anyId()}`
const insert = (): string =>
  `INSERT INTO inventory VALUES (${anyId()}, ${random(1000)}, '${anyStatus()}') ON CONFLICT DO NOTHING`
const remove = (): string => `DELETE FROM inventory WHERE pet_id = ${anyId()}`
const replace = (): string => {
  const id = anyId()
  return `DELETE FROM inventory WHERE pet_id = ${id}; INSERT INTO inventory VALUES (${id}, ${random(9)}, 'sold')`
}
const exchange = (): string =>
  `DELETE FROM inventory WHERE pet_id = (SELECT pet_id FROM inventory LIMIT 1); INSERT INTO inventory
   SELECT max(pet_id) + 1, 1, 'sold' FROM inventory WHERE pet_id < 9223372036854775807`

const change = (): string =>
  pick([update, update, update, updateMany, setStatus, insert, insert, remove, replace, exchange])()

const withSavepoints = (): string =>
  `SAVEPOINT one; ${change()}; RELEASE one; SAVEPOINT two; ${change()}; ROLLBACK TO two; SAVEPOINT three; ${change()}`

const TABLE = `(pet_id bigint PRIMARY KEY, quantity integer NOT NULL, status text NOT NULL DEFAULT 'available')`

/** What the name `inventory` may stand for. Each begins with the rows in the temporary table `kept`. */
const kinds = [
  `CREATE TABLE inventory ${TABLE}; INSERT INTO inventory TABLE kept`,
  `CREATE UNLOGGED TABLE inventory ${TABLE}; INSERT INTO inventory TABLE kept`,
  `CREATE TABLE stock ${TABLE}; INSERT INTO stock TABLE kept; CREATE VIEW inventory AS SELECT * FROM stock`,
  `CREATE TABLE inventory ${TABLE}; CREATE TABLE stock () INHERITS (inventory); INSERT INTO stock TABLE kept`,
] as const

/** In the schema that is always searched, so that the name never stands for nothing. */
const newKind = (): string => `
  SET LOCAL search_path = public;
  CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT pet_id, quantity::integer, status::text FROM inventory;
  DO $$ BEGIN EXECUTE (SELECT format('DROP %s inventory CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END)
    FROM pg_class WHERE oid = 'inventory'::regclass); END $$;
  DROP TABLE IF EXISTS stock CASCADE; ${random(2) === 0 ? kinds[0] : pick(kinds)}`

const definitions = [
  () => 'ALTER TABLE inventory ADD COLUMN noted timestamptz DEFAULT clock_timestamp()',
  () => 'ALTER TABLE inventory DROP COLUMN noted',
  () => `ALTER TABLE inventory ALTER quantity TYPE ${pick(['bigint', 'integer', 'smallint', 'numeric'])}`,
  () => `ALTER TABLE inventory ALTER status TYPE ${pick(['text', 'varchar', 'varchar(20)'])}`,
  () =>
    "ALTER TABLE inventory RENAME status TO was; ALTER TABLE inventory ADD status text NOT NULL DEFAULT 'sold'",
  () => 'ALTER TABLE inventory DROP COLUMN was',
  () => 'ALTER TABLE inventory ADD spare integer NOT NULL DEFAULT 9',
  () => `ALTER TABLE inventory RENAME quantity TO former; ALTER TABLE inventory RENAME spare TO quantity;
    ALTER TABLE inventory RENAME former TO spare`,
  () => 'ALTER TABLE inventory DROP CONSTRAINT inventory_pkey',
  () => 'ALTER TABLE inventory ADD CONSTRAINT inventory_pkey PRIMARY KEY (pet_id)',
  () => 'ALTER TABLE inventory ADD CONSTRAINT inventory_pkey PRIMARY KEY (pet_id, status)',
  () => `CREATE OR REPLACE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF pg_trigger_depth() < 2 THEN UPDATE inventory SET quantity = new.quantity WHERE pet_id = new.pet_id + 1; END IF;
      RETURN new; END $$;
    CREATE OR REPLACE TRIGGER follow AFTER UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION follow()`,
  () => 'DROP TRIGGER IF EXISTS follow ON inventory',
  () => 'SELECT FROM inventory WHERE pet_id < 99 FOR SHARE',
  () => 'SELECT count(pg_current_xact_id())',
  () => 'DROP POLICY IF EXISTS half ON inventory; CREATE POLICY half ON inventory USING (quantity % 2 = 0)',
  () => `ALTER TABLE inventory ${pick(['ENABLE', 'DISABLE', 'DISABLE'])} ROW LEVEL SECURITY`,
  () => `CREATE SCHEMA IF NOT EXISTS nearer; GRANT USAGE ON SCHEMA nearer TO ${SERVICE};
    CREATE TABLE nearer.inventory ${TABLE}; INSERT INTO nearer.inventory SELECT n, 1, 'sold' FROM generate_series(1, 50) n;
    GRANT SELECT ON nearer.inventory TO ${SERVICE}`,
  () => 'UPDATE nearer.inventory SET quantity = quantity + 1 WHERE pet_id = 7',
  () => 'DROP TABLE nearer.inventory',
  () => 'ALTER SCHEMA nearer RENAME TO farther',
  () => 'ALTER SCHEMA farther RENAME TO nearer',
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

export const FIRST_ENTRIES = `INSERT INTO inventory SELECT n, n % 100, 'sold' FROM generate_series(1, 2500) n`

/**
 * Changes the table of the service in random steps, some of them in transactions that stay open or are prepared. After each,
 * compares the lists of two processes with what SQL says, byte for byte. Resolves with how many lists of the first process were
 * made from the changes since the one before.
 */
export async function compareLists(t: Test, server: OwnServer, steps: number): Promise<number> {
  const open = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, options: '-c lock_timeout=50ms' })
    await client.connect()
    t.teardown(() => client.end())
    return client
  }
  const main = await open(server.superuserUrl)
  const others = [await open(server.superuserUrl), await open(server.superuserUrl)]
  const reader = await open(server.url)
  const direct = await startApp(t, server.url)
  const apps = [direct, await startApp(t, server.url, { env: { DATABASE_POOLER: 'transaction' } })]
  let rejected = 0
  /** Those with a transaction that stays open. */
  const inTransaction = new Set<pg.Client>()
  let prepared: string[] = []

  const run = async (client: pg.Client, text: string): Promise<boolean> => {
    try {
      await client.query(text)
      return true
    } catch (error) {
      if (!(error instanceof pg.DatabaseError)) throw error
      rejected++
      await client.query('ROLLBACK')
      return false
    }
  }

  const copyFrozen = async (): Promise<void> => {
    const ids = new Set(Array.from({ length: 1500 + random(1000) }, () => random(4000)))
    if (!(await run(main, 'BEGIN; TRUNCATE inventory'))) return
    const stream = main.query(copyFrom('COPY inventory (pet_id, quantity, status) FROM STDIN (FREEZE)'))
    stream.end([...ids].map((id) => `${id}\t1\tsold\n`).join(''))
    await once(stream, 'finish').catch(() => {})
    await main.query('COMMIT')
  }

  const step = async (index: number): Promise<string> => {
    const kind = random(100)
    let text = `BEGIN; ${pick([change, withSavepoints])()}; ${pick(['COMMIT', 'COMMIT', 'ROLLBACK'])}`
    if (kind >= 45 && kind < 60) {
      const client = others[random(others.length)] ?? main
      const isOpen = inTransaction.has(client)
      text = isOpen ? pick(['COMMIT', 'ROLLBACK', change()]) : `BEGIN; ${withSavepoints()}`
      const isDone = await run(client, text)
      if (isDone && !/^(COMMIT|ROLLBACK)$/.test(text)) inTransaction.add(client)
      else inTransaction.delete(client)
      return text
    }
    if (kind === 99) {
      await copyFrozen()
      return 'COPY FREEZE'
    }
    if (kind >= 82)
      text = `BEGIN; ${(kind >= 95 ? newKind : pick(definitions))()}; GRANT SELECT, UPDATE ON inventory TO ${SERVICE}; COMMIT`
    else if (kind >= 74) text = pick(alone)
    else if (kind >= 66 || (kind >= 60 && prepared.length > 2)) {
      const [gid] = prepared
      text = gid === undefined ? 'SELECT 1' : `${pick(['COMMIT', 'ROLLBACK'])} PREPARED '${gid}'`
    } else if (kind >= 60) text = `BEGIN; ${withSavepoints()}; PREPARE TRANSACTION 'step_${index}'`
    await run(main, text)
    prepared = (await main.query('SELECT gid FROM pg_prepared_xacts')).rows.map(({ gid }) => gid)
    if (text.startsWith('ALTER SYSTEM')) {
      await main.query('SELECT pg_reload_conf()')
      // Each session takes the new setting before its next statement, once the signal has arrived.
      await setTimeout(200)
    }
    return text
  }

  for (let index = 0; index < steps; index++) {
    const what = await step(index)
    const { rows } = await reader.query<{ list: string; hides: boolean }>(
      `SELECT '[' || coalesce(string_agg(${ENTRY_JSON}, ',' ORDER BY entry.pet_id), '') || ']' AS list,
              row_security_active('inventory') OR ${tableFault(INVENTORY_TABLE)} IS NOT NULL AS hides FROM inventory AS entry`,
    )
    const [{ list: expected, hides } = { list: undefined, hides: false }] = rows
    for (const [process, { send }] of apps.entries()) {
      const { status, text } = await send('GET', '/v1/inventory')
      if (status === 200 && text === expected) continue
      // Rather no list than one from which row security hides entries, or of a table that is not as the migrations make it.
      if (status === 503 && hides) continue
      t.fail(`process ${process}, step ${index} of seed ${SEED}: ${status} after ${what}`)
      return 0
    }
  }
  for (const client of others) await client.query('ROLLBACK')
  for (const gid of prepared) await main.query(`ROLLBACK PREPARED '${gid}'`)
  t.ok(rejected < steps / 2, `${rejected} of ${steps} steps were rejected`)
  return direct.metric('inventory_lists_total', { result: 'changed' })
}
