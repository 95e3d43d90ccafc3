import t from 'tap'
import { startApp, startService } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { eventually, until } from '../../support/eventually.ts'
import { openUnread } from '../../support/messages.ts'
import { startRelay } from '../../support/relay.ts'

t.test('the list has every entry by petId, exactly, and no byte more', async (t) => {
  const { database, send } = await startService(t)
  await database.query(
    `INSERT INTO inventory SELECT n::bigint * 1000003 - 5000000, n, (ARRAY['available', 'pending', 'sold'])[1 + n % 3]
     FROM generate_series(1, 5000) n`,
  )
  const bounds = ['-9223372036854775808,0,sold', '9223372036854775807,2147483647,available']
  await addEntries(database, [...bounds, '9007199254740993,1,available'])
  const rows = await database.query('SELECT * FROM inventory ORDER BY pet_id')
  const items = rows.map(
    (row) => `{"petId":${row['pet_id']},"quantity":${row['quantity']},"status":"${row['status']}"}`,
  )
  const { headers, text } = await send('GET', '/v1/inventory')
  t.equal(text, `[${items}]`)
  t.match(text, '{"petId":9007199254740993,"quantity":1,"status":"available"},{"petId":9223372036854775807,')
  t.equal(headers['content-type'], 'application/json; charset=utf-8')
})

t.test('lists asked for during a read share the next one, with what was committed before', async (t) => {
  const database = await testDatabase(t, { entries: ['1,1,available'] })
  // The first list is on its way for as long as the test wants.
  let release = (): void => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  let isRead = false
  const relay = await startRelay(t, database.url, {
    async towardsClient(bytes) {
      if (!bytes.includes('{"petId":1,')) return bytes
      isRead = true
      await released
      return bytes
    },
  })
  const { send, metric } = await startApp(t, relay.url)
  const lists = (result: string): Promise<number> => metric('inventory_lists_total', { result })
  const first = send('GET', '/v1/inventory')
  await until('the first list to be read', () => isRead)
  await database.query('UPDATE inventory SET quantity = 2')
  const others = Array.from({ length: 50 }, () => send('GET', '/v1/inventory'))
  await eventually('49 of the others to join one', async () => (await lists('joined')) === 49)
  release()
  t.match((await first).text, '"quantity":1')
  for (const { text } of await Promise.all(others)) t.match(text, '"quantity":2')
  t.equal((await lists('read')) + (await lists('changed')), 2)
})

t.test('slow clients do not delay the lists of others', async (t) => {
  const { port, send, update } = await startService(t, 50_000, { env: { DATABASE_POOL_SIZE: '4' } })
  await Promise.all(Array.from({ length: 20 }, () => openUnread(t, port)))
  for (let quantity = 1; quantity <= 5; quantity++) {
    t.equal((await update(1, quantity)).status, 200)
    t.match((await send('GET', '/v1/inventory')).text, `{"petId":1,"quantity":${quantity},`)
  }
})
