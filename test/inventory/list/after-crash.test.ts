import { mock } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { longLimits, startApp } from '../../support/app.ts'
import { hold } from '../../support/on-server.ts'
import { startOwnServer } from '../../support/own-server.ts'

// Nobody else commits there. Nothing but a commit writes the log to the disk, so that a crash undoes what came after the last one.
const database = await startOwnServer(t, { wal_writer_delay: '10s', autovacuum: 'off' })
t.beforeEach(() => database.query('TRUNCATE inventory'))

t.test('the list is read again after PostgreSQL has recovered from a crash', async (t) => {
  const transactions = async (): Promise<unknown> => (await database.query('SELECT pg_current_snapshot()'))[0]
  await database.query("INSERT INTO inventory VALUES (1, 0, 'available')")
  await database.query('CHECKPOINT')
  const direct = await startApp(t, database.url)
  const pooled = await startApp(t, database.url, { env: { DATABASE_POOLER: 'transaction' } })
  await database.query('BEGIN; UPDATE inventory SET quantity = 1; ROLLBACK')
  for (const { send } of [direct, pooled]) t.match((await send('GET', '/v1/inventory')).text, '"quantity":0')
  const before = await transactions()
  await database.crash()
  await database.query('UPDATE inventory SET quantity = 2')
  t.strictSame(await transactions(), before, 'the number of the transaction was given out again')
  for (const { send } of [direct, pooled]) t.match((await send('GET', '/v1/inventory')).text, '"quantity":2')
})

t.test('forgets a commit that a crash has undone, although a list was made from its changes', async (t) => {
  await database.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, 100) AS n")
  const { send } = await startApp(t, database.url)
  const quantities = async (): Promise<unknown[]> => {
    const { text } = await send('GET', '/v1/inventory')
    return Array.from(text.matchAll(/"quantity":(\d+)/g), ([, quantity]) => Number(quantity)).slice(0, 3)
  }
  t.strictSame(await quantities(), [0, 0, 0])
  await database.query('UPDATE inventory SET quantity = 1 WHERE pet_id = 1')
  t.strictSame(await quantities(), [1, 0, 0])
  await database.query('SET synchronous_commit = off; UPDATE inventory SET quantity = 2 WHERE pet_id = 2')
  t.strictSame(await quantities(), [1, 2, 0])
  await database.crash()
  await database.query('UPDATE inventory SET quantity = 3 WHERE pet_id = 3')
  const stored = await database.query('SELECT quantity FROM inventory WHERE pet_id <= 3 ORDER BY pet_id')
  const expected = stored.map(({ quantity }) => Number(quantity))
  t.strictSame(await quantities(), expected)
})

t.test('a list without a commit since the last one needs no lock, also after a quiet day', async (t) => {
  await database.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, 100) AS n")
  await database.query("ALTER DATABASE postgres SET idle_session_timeout = '100ms'")
  const { send, metric } = await startApp(t, database.url, {
    timings: { lists: { ...longLimits.lists, lock: 300 } },
  })
  const list = () => send('GET', '/v1/inventory')
  mock.timers.enable({ apis: ['setTimeout'] })
  await list()
  mock.timers.tick(86_400_000)
  mock.timers.reset()
  await setTimeout(300)
  await list()
  t.equal(await metric('inventory_lists_total', { result: 'read' }), 1)
  await database.query('ALTER DATABASE postgres RESET idle_session_timeout')
  await database.query('UPDATE inventory SET quantity = 7777 WHERE pet_id = 1')
  t.match(await list(), { status: 200, text: '"quantity":7777' })
  await hold(t, database.superuserUrl, 'LOCK TABLE inventory')
  t.equal((await list()).status, 503, 'changes are read at once')
  t.match(await list(), { status: 200, text: '"quantity":7777' })
})
