import { connect } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import fastify from 'fastify'
import t from 'tap'
import { apiKeyIntervals } from '../../../src/api-keys/cache.ts'
import { openDatabase, requestLimits } from '../../../src/database/pool/pool.ts'
import { selectFields } from '../../../src/inventory/entry/columns.ts'
import { InventoryItem, PetStatus } from '../../../src/inventory/entry/schemas.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, type TestDatabase, testDatabase } from '../../support/database.ts'
import { json } from '../../support/http.ts'
import { outageOf } from '../../support/outage.ts'
import { startOwnServer } from '../../support/own-server.ts'

const addMany = (database: Pick<TestDatabase, 'query'>, count: number): Promise<unknown> =>
  database.query(
    `INSERT INTO inventory SELECT n::bigint * 1000003 - 5000000, n, (ARRAY['available', 'pending', 'sold'])[1 + n % 3]
     FROM generate_series(1, ${count}) n`,
  )

t.test('the list is byte for byte what the response schema makes of the entries', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 5000)
  await addEntries(database, [
    ['-9223372036854775808', 0, 'sold'],
    ['9223372036854775807', 2147483647, 'available'],
  ])
  const { send } = await startApp(t, database.url)
  const direct = openDatabase({
    url: database.url,
    size: 1,
    limits: requestLimits,
    onConnectionLost: () => {},
  })
  t.teardown(() => direct.close())
  const rows = await direct.query<InventoryItem>(`SELECT ${selectFields()} FROM inventory ORDER BY pet_id`)
  const serializer = fastify()
  for (const schema of [PetStatus, InventoryItem]) serializer.addSchema(schema)
  serializer.get(
    '/',
    { schema: { response: { 200: { type: 'array', items: { $ref: 'InventoryItem#' } } } } },
    () => rows,
  )
  const expected = await serializer.inject('/')
  t.equal((await send('GET', '/v1/inventory')).text, expected.body)
})

t.test('no entry is read if nothing was committed since the last list', async (t) => {
  // A server of its own: a commit in any database of a server counts.
  const database = await startOwnServer(t, { autovacuum: 'off' })
  await addMany(database, 2000)
  const way = await outageOf(t, database.url)
  // The reads of the keys take the same way.
  const { send, log } = await startApp(t, way.url, {
    timings: { apiKeys: { ...apiKeyIntervals, refreshMs: 60_000 } },
  })
  const first = await send('GET', '/v1/inventory')
  const before = way.received()
  t.equal((await send('GET', '/v1/inventory')).text, first.text)
  const received = way.received() - before
  t.ok(received > 0 && received < 1000, `a list took ${received} bytes from the database`)
  t.ok(log.some((line) => line['comparable'] === true && /^PostgreSQL/.test(String(line['version']))))
})

t.test('the list is read again after every kind of commit of any session', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 1, 'available']])
  const { send } = await startApp(t, database.url)
  const list = async (): Promise<string> => (await send('GET', '/v1/inventory')).text
  t.equal(await list(), '[{"petId":1,"quantity":1,"status":"available"}]')
  await database.query("UPDATE inventory SET status = 'sold'")
  t.equal(await list(), '[{"petId":1,"quantity":1,"status":"sold"}]')
  await addEntries(database, [['2', 2, 'pending']])
  t.equal(
    await list(),
    '[{"petId":1,"quantity":1,"status":"sold"},{"petId":2,"quantity":2,"status":"pending"}]',
  )
  await database.query('DELETE FROM inventory WHERE pet_id = 1')
  t.equal(await list(), '[{"petId":2,"quantity":2,"status":"pending"}]')
  const rollBack = await database.hold('UPDATE inventory SET quantity = 7')
  t.equal(await list(), '[{"petId":2,"quantity":2,"status":"pending"}]', 'not what is not committed')
  await rollBack()
  t.equal(await list(), '[{"petId":2,"quantity":2,"status":"pending"}]')
  await database.query('TRUNCATE inventory')
  t.equal(await list(), '[]')
})

t.test('the list is read every time if the server cannot tell whether anything was committed', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 1, 'available']])
  await database.query('ALTER TABLE inventory RENAME TO stock')
  await database.query('CREATE VIEW inventory AS SELECT * FROM stock')
  const { send, log } = await startApp(t, database.url)
  for (let quantity = 0; quantity < 5; quantity++) {
    await send('PATCH', '/v1/inventory/1', json({ quantity }))
    t.equal(
      (await send('GET', '/v1/inventory')).text,
      `[{"petId":1,"quantity":${quantity},"status":"available"}]`,
    )
  }
  t.ok(log.some((line) => line['msg'] === 'every list is read in full'))
})

t.test('the list is fresh under load, from every process', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 200)
  await addEntries(database, [['1', 0, 'available']])
  const apps = [await startApp(t, database.url), await startApp(t, database.url)] as const
  let running = true
  const noise = Array.from({ length: 8 }, async (_, index) => {
    const app = apps[index % 2 === 0 ? 0 : 1]
    while (running) await app.send('GET', '/v1/inventory')
  })
  for (let quantity = 1; quantity <= 40; quantity++) {
    const [writer, reader] = quantity % 2 === 0 ? apps : [apps[1], apps[0]]
    await writer.send('PATCH', '/v1/inventory/1', json({ quantity }))
    const { text } = await reader.send('GET', '/v1/inventory')
    t.match(text, `{"petId":1,"quantity":${quantity},`)
  }
  running = false
  await Promise.all(noise)
})

t.test('a list whose read is interrupted is an error or complete', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 100_000)
  const way = await outageOf(t, database.url)
  const { send } = await startApp(t, way.url)
  const whole = await send('GET', '/v1/inventory')
  t.equal(JSON.parse(whole.text).length, 100_000)
  for (const delay of [5, 15, 30, 60]) {
    await database.query(
      'UPDATE inventory SET quantity = quantity WHERE pet_id = (SELECT min(pet_id) FROM inventory)',
    )
    const answer = send('GET', '/v1/inventory')
    await setTimeout(delay)
    await way.cut()
    const { status, text } = await answer
    if (status === 200) t.equal(text, whole.text)
    else t.equal(status, 503)
    await way.restore()
  }
})

t.test('slow clients do not delay the lists of others', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 50_000)
  await addEntries(database, [['1', 0, 'available']])
  const { port, send } = await startApp(t, database.url, { env: { DATABASE_POOL_SIZE: '4' } })
  const slow = Array.from({ length: 50 }, () => {
    const socket = connect({ port, host: '127.0.0.1' })
    socket.on('error', () => {})
    socket.write(`GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`)
    return socket.pause()
  })
  t.teardown(() => {
    for (const socket of slow) socket.destroy()
  })
  await setTimeout(500)
  for (let quantity = 1; quantity <= 5; quantity++) {
    t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity }))).status, 200)
    t.match((await send('GET', '/v1/inventory')).text, `{"petId":1,"quantity":${quantity},`)
  }
})
