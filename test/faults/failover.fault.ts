import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { notReadyReasons } from '../../src/database/causes.ts'
import { eventually } from '../support/eventually.ts'
import { json, type Send } from '../support/http.ts'
import { expectOneHistory, type Load, startLoad } from '../support/load.ts'
import { connectToMetrics, total } from '../support/metrics.ts'
import { type OwnServer, startOwnPair } from '../support/own-server.ts'
import { startServer } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'

const pets = [1, 2, 3, 4, 5, 6, 7, 8]

/** How soon updates and lists are served again once the address leads to a primary, in milliseconds. */
const RECOVERY_MS = 2000

/** A service under load, whose address leads to the primary of a pair. */
async function setUp(t: Test) {
  const pair = await startOwnPair(t, { wal_keep_size: '256MB' })
  // So many entries that lists are read by their changes.
  await pair.primary.query(
    `INSERT INTO inventory SELECT unnest(ARRAY[${pets.join()}]), 0, 'available';
     INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1000001, 1000100) AS n`,
  )
  const address = await startRelay(t, pair.primary.url)
  const server = await startServer(t, { DATABASE_URL: address.url, METRICS_PORT: '0' })
  const { port, send } = server
  const load = startLoad(t, { ports: [port], clients: 16, pets })
  await load.served(200)
  const { scrape } = await connectToMetrics(server)
  /** The reasons that the metrics name for not being ready. */
  const reasons = async (): Promise<string[]> => {
    const metrics = await scrape()
    const isTrue = (reason: string): boolean => total(metrics, 'inventory_not_ready', { reason }) === 1
    return Object.keys(notReadyReasons).filter(isTrue)
  }
  return { ...pair, address, server, send, load, reasons }
}

/** The same where the old primary answers nothing, so that an attempt to connect may have to time out first. */
const RECOVERY_FROM_SILENCE_MS = 3000

/** Waits until both kinds of requests are served, and for a hundred of them. */
async function expectRecovery(t: Test, load: Load, limitMs = RECOVERY_MS): Promise<void> {
  const start = performance.now()
  await Promise.all([load.next('update', 'success'), load.next('list', 'success')])
  const took = performance.now() - start
  t.ok(took < limitMs, `updates and lists were served again after ${Math.round(took)} ms`)
  await load.served(100)
}

/** Ends a primary that answers only once the standby has each commit, so that none is lost. Resolves when requests fail. */
async function lose(primary: OwnServer, load: Load, end: () => Promise<void>): Promise<void> {
  await primary.waitForStandby('*')
  await eventually('the standby to be synchronous', async () => {
    const rows = await primary.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
    return rows.length > 0
  })
  await load.served(100)
  const failing = Promise.all([load.next('update', 'failure'), load.next('list', 'failure')])
  await end()
  await failing
}

async function isNotReady(send: Send): Promise<boolean> {
  const { status, text } = await send('GET', '/readyz')
  return status === 503 && text.includes('read-only')
}

t.test('the primary crashes, the standby is promoted, the address follows', async (t) => {
  const { primary, standby, address, load, send } = await setUp(t)
  await lose(primary, load, () => primary.kill())
  address.leadTo(standby.url)
  await eventually('the service to say that the standby is read-only', () => isNotReady(send))
  await standby.query('SELECT pg_promote()')
  await expectRecovery(t, load)
  await expectOneHistory(t, load, pets, standby)
})

t.test('the primary freezes, so that no connection to it ends', async (t) => {
  const { primary, standby, address, load } = await setUp(t)
  await lose(primary, load, () => primary.suspend())
  await standby.query('SELECT pg_promote()')
  address.leadTo(standby.url)
  await expectRecovery(t, load, RECOVERY_FROM_SILENCE_MS)
  await expectOneHistory(t, load, pets, standby)
})

t.test('a switchover, with the old primary alive as a standby behind the address for a while', async (t) => {
  const { primary, standby, address, load, send, reasons } = await setUp(t)
  await primary.stop()
  await standby.query('SELECT pg_promote()')
  await primary.follow(standby)
  // The address still leads to the old primary.
  await eventually('the service to say that the old primary is read-only', () => isNotReady(send))
  await eventually('the metrics to say so', async () => (await reasons()).join() === 'read_only')
  await setTimeout(500)
  address.leadTo(standby.url)
  await expectRecovery(t, load)
  await expectOneHistory(t, load, pets, standby)
})

t.test('the old primary goes on taking writes behind connections that are open', async (t) => {
  const { primary, standby, address, server, load, send, reasons } = await setUp(t)
  await load.stop()
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 13 }))).status, 200)
  const copied = 'SELECT FROM inventory WHERE pet_id = 1 AND quantity = 13'
  await eventually('the standby to have it', async () => (await standby.query(copied)).length > 0)
  t.match((await send('GET', '/v1/inventory')).text, '{"petId":1,"quantity":13,')
  // Timelines that exist already. The number of the next one has a letter in the names of WAL files.
  for (let timeline = 2; timeline < 10; timeline++)
    await writeFile(path.join(standby.data, 'pg_wal', `0000000${timeline}.history`), '')
  await standby.query('SELECT pg_promote()')
  address.leadTo(standby.url)
  // Only connections for updates are replaced; that of the lists stays, idle, on the old primary. The queries show which is
  // which, but for a connection that was opened and not used yet: it is replaced after the next update.
  let quantity = 200
  await eventually('an update on the new primary', async () => {
    await primary.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'service' AND query LIKE 'UPDATE%'",
    )
    await send('PATCH', '/v1/inventory/1', json({ quantity: ++quantity }))
    const [entry] = await standby.query('SELECT quantity FROM inventory WHERE pet_id = 1')
    return entry?.['quantity'] === String(quantity)
  })
  t.match((await send('GET', '/v1/inventory')).text, `{"petId":1,"quantity":${quantity},`)
  await server.output(/another server was promoted: timeline 10 after 1/)
  const former = await primary.query('SELECT quantity FROM inventory WHERE pet_id = 1')

  // The address goes back to the old primary, which lacks that update.
  address.leadTo(primary.url)
  address.cut()
  const refused = await eventually('the service to refuse the old primary', async () => {
    const { status, text } = await send('GET', '/readyz')
    return status === 503 ? text : undefined
  })
  t.match(refused, /former primary/)
  t.strictSame(await reasons(), ['former_primary'])
  t.equal((await send('GET', '/v1/inventory')).status, 503)
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 999 }))).status, 503)
  t.strictSame(await primary.query('SELECT quantity FROM inventory WHERE pet_id = 1'), former)

  address.leadTo(standby.url)
  await eventually('a list', async () =>
    (await send('GET', '/v1/inventory')).text.includes(`{"petId":1,"quantity":${quantity},`),
  )
})

t.test('a standby that lags stands behind the address', async (t) => {
  const { primary, standby, address, load, send } = await setUp(t)
  await standby.query("ALTER SYSTEM SET recovery_min_apply_delay = '1h'")
  await standby.query('SELECT pg_reload_conf()')
  await load.served(100)
  address.leadTo(standby.url)
  address.cut()
  await eventually('the service to say that the standby is read-only', () => isNotReady(send))
  address.leadTo(primary.url)
  await expectRecovery(t, load)
  await expectOneHistory(t, load, pets, primary)
})

t.test('the address flaps between the primary and the standby', async (t) => {
  const { primary, standby, address, load } = await setUp(t)
  for (let round = 0; round < 20; round++) {
    address.leadTo(round % 2 === 0 ? standby.url : primary.url)
    if (round % 4 === 0) address.cut()
    await setTimeout(Math.random() * 300)
  }
  address.leadTo(primary.url)
  await expectRecovery(t, load)
  await expectOneHistory(t, load, pets, primary)
})
