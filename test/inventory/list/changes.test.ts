import { once } from 'node:events'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { pino } from 'pino'
import t from 'tap'
import { listLimits, openDatabase } from '../../../src/database/pool/pool.ts'
import { ActiveDownloads } from '../../../src/inventory/list/active-downloads.ts'
import { inventoryList } from '../../../src/inventory/list/cached-list.ts'
import { Snapshot } from '../../../src/inventory/list/snapshot.ts'
import { inventoryRepository } from '../../../src/inventory/repository.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { startOwnServer } from '../../support/own-server.ts'

/** `STEPS=50000 SEED=7 npm test -- test/inventory/list/changes.test.ts` tries others, and more of them. */
const { STEPS = '800', SEED = '1' } = process.env

/** A generator of numbers from 0 to below `limit`, the same for the same seed (mulberry32). */
function randomOf(seed: number): (limit: number) => number {
  let state = seed
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit
  }
}

const random = randomOf(Number(SEED))

const pick = <Item>(items: readonly [Item, ...Item[]]): Item => items[random(items.length)] ?? items[0]

/** An id that may have an entry, or any other. */
const anyId = (): string =>
  pick([
    String(random(3000)),
    String(random(3000)),
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

/** A change with parts that are undone, and others of subtransactions. */
const withSavepoints = (): string =>
  `SAVEPOINT one; ${change()}; RELEASE one; SAVEPOINT two; ${change()}; ROLLBACK TO two; SAVEPOINT three; ${change()}`

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
