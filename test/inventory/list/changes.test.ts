import { once } from 'node:events'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { pino } from 'pino'
import t from 'tap'
import { openDatabase } from '../../../src/database/pool.ts'
import { listLimits } from '../../../src/database/pool-options.ts'
import { inventoryList } from '../../../src/inventory/list/cached-list.ts'
import { ActiveDownloads } from '../../../src/inventory/list/delivery/active-downloads.ts'
import { Snapshot } from '../../../src/inventory/list/snapshot/snapshot.ts'
import { inventoryRepository } from '../../../src/inventory/repository.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { startOwnServer } from '../../support/own-server.ts'
import { randomChanges } from '../../support/random-changes.ts'

/** `STEPS=50000 SEED=7 npm test -- test/inventory/list/changes.test.ts` tries others, and more of them. */
const { STEPS = '800', SEED = '1' } = process.env

const { random, pick, change, withSavepoints } = randomChanges(Number(SEED))

const whole = [
  'VACUUM inventory',
  'VACUUM (FREEZE) inventory',
  'VACUUM FULL inventory',
  'CLUSTER inventory USING inventory_pkey',
  'ANALYZE inventory',
  'ALTER TABLE inventory ADD COLUMN IF NOT EXISTS noted timestamptz DEFAULT clock_timestamp()',
  'ALTER TABLE inventory DROP COLUMN IF EXISTS noted',
  "BEGIN; ALTER TABLE inventory DROP status; ALTER TABLE inventory ADD status text NOT NULL DEFAULT 'pending'; COMMIT",
  'BEGIN; CREATE TEMP TABLE rows ON COMMIT DROP AS TABLE inventory; TRUNCATE inventory; INSERT INTO inventory TABLE rows; COMMIT',
  'BEGIN; SELECT FROM inventory WHERE pet_id < 99 FOR SHARE; COMMIT',
  'SELECT count(pg_current_xact_id())',
] as const

/** What can fail because of a transaction that the test itself keeps open, or of two that meet. */
const expected = ['55P03', '40P01', '23505', '25P02', '42704', '2BP01']

t.test('a list with its changes is the list read whole, byte for byte, after any history', async (t) => {
  const server = await startOwnServer(t, { max_prepared_transactions: '20' })
  const clients = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const client = new pg.Client({ connectionString: server.url, options: '-c lock_timeout=15ms' })
      client.on('error', () => {})
      await client.connect()
      t.teardown(() => client.end())
      return client
    }),
  )
  await server.query(`ALTER TABLE inventory OWNER TO ${server.role}; GRANT CREATE, TEMPORARY ON DATABASE
    ${new URL(server.url).pathname.slice(1)} TO ${server.role}; INSERT INTO inventory SELECT n, n, 'sold' FROM generate_series(1, 2500) n`)
  const database = openDatabase({ url: server.url, size: 1, limits: listLimits, onConnectionLost: () => {} })
  const other = openDatabase({ url: server.url, size: 1, limits: listLimits, onConnectionLost: () => {} })
  t.teardown(() => Promise.all([database.close(), other.close()]))
  const statistics = new InventoryStatistics()
  const repository = inventoryRepository(database, database)
  const list = inventoryList(repository, new ActiveDownloads(), statistics, pino({ level: 'silent' }))
  const readWhole = inventoryRepository(other, other)

  const run = async (client: pg.Client, text: string): Promise<boolean> => {
    try {
      await client.query(text)
      return true
    } catch (error) {
      if (!(error instanceof pg.DatabaseError) || !expected.includes(error.code ?? '')) throw error
      await client.query('ROLLBACK')
      return false
    }
  }
  const [main, ...others] = clients
  if (main === undefined) throw new Error('There is no client')
  const open = new Set<pg.Client>()
  let prepared: string[] = []

  const copyFrozen = async (): Promise<void> => {
    const ids = new Set(Array.from({ length: 1500 + random(1000) }, () => random(4000)))
    if (!(await run(main, 'BEGIN; TRUNCATE inventory'))) return
    const stream = main.query(copyFrom('COPY inventory (pet_id, quantity, status) FROM STDIN (FREEZE)'))
    stream.end([...ids].map((id) => `${id}\t1\tsold\n`).join(''))
    await once(stream, 'finish')
    await main.query('COMMIT')
  }

  const step = async (index: number): Promise<string> => {
    const kind = random(100)
    const client = others[random(others.length)] ?? main
    if (kind < 45) {
      const text = change()
      await run(main, `BEGIN; ${text}; ${pick(['COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK'])}`)
      return text
    }
    if (kind < 58) {
      const text = withSavepoints()
      await run(main, `BEGIN; ${text}; COMMIT`)
      return text
    }
    if (kind < 75) {
      const text = open.has(client) ? pick(['COMMIT', 'ROLLBACK', change()]) : `BEGIN; ${withSavepoints()}`
      const done = await run(client, text)
      if (!done || text === 'COMMIT' || text === 'ROLLBACK') open.delete(client)
      else open.add(client)
      return text
    }
    if (kind < 82 && prepared.length < 5) {
      const name = `step_${index}`
      const text = withSavepoints()
      if (await run(main, `BEGIN; ${text}; PREPARE TRANSACTION '${name}'`)) prepared.push(name)
      return text
    }
    if (kind < 92) {
      const [name, ...rest] = prepared
      if (name !== undefined) await run(main, `${pick(['COMMIT', 'ROLLBACK'])} PREPARED '${name}'`)
      prepared = rest
      return `the end of ${name}`
    }
    if (kind < 98) {
      const text = pick(whole)
      // VACUUM runs in no transaction, so each statement is sent alone.
      for (const statement of text.split('; ')) if (!(await run(main, statement))) break
      return text
    }
    await copyFrozen()
    return 'COPY FREEZE'
  }

  const steps = Number(STEPS)
  for (let index = 0; index < steps; index++) {
    const what = await step(index)
    const [latest, { pieces }] = [await list(), await readWhole.readAll([])]
    const expectedList = new Snapshot(pieces)
    const text = Buffer.concat([...latest.chunks]).toString()
    if (latest.etag !== expectedList.etag || text !== Buffer.concat([...expectedList.chunks]).toString()) {
      t.equal(
        text,
        Buffer.concat([...expectedList.chunks]).toString(),
        `step ${index} of seed ${SEED}: ${what}`,
      )
      return
    }
  }
  for (const client of open) await client.query('ROLLBACK')
  for (const name of prepared) await main.query(`ROLLBACK PREPARED '${name}'`)
  const { read, changed, unchanged } = statistics.lists
  t.ok(changed > steps / 5, `${changed} lists by their changes, ${read} read whole, ${unchanged} unchanged`)
})
