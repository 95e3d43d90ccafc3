import t from 'tap'
import { startApp, startService } from '../../support/app.ts'
import { testDatabase } from '../../support/database.ts'

t.test('the list has no part of a transaction', async (t) => {
  const { database, send } = await startService(t, 500)
  let writing = true
  const writer = (async () => {
    for (let quantity = 1; quantity <= 40; quantity++) {
      await database.query('UPDATE inventory SET quantity = $1', [quantity])
    }
    writing = false
  })()
  while (writing) {
    const { text } = await send('GET', '/v1/inventory')
    const quantities = new Set(Array.from(text.matchAll(/"quantity":(\d+)/g), ([, quantity]) => quantity))
    t.equal(quantities.size, 1, 'all entries of one list have the same quantity')
  }
  await writer
})

t.test('a query and a body of a list are ignored', async (t) => {
  const { send } = await startService(t)
  const message = { headers: { 'content-type': 'text/xml' }, body: '<a/>' }
  t.equal((await send('GET', '/v1/inventory?limit=1&petId=x', message)).status, 200)
})

t.test('a list leaves out the entries with a missing value, also one that loses it later', async (t) => {
  const database = await testDatabase(t)
  await database.query(
    `DROP TABLE inventory; CREATE TABLE inventory (pet_id bigint, quantity integer, status text);
     INSERT INTO inventory VALUES (NULL, 1, 'sold'), (2, NULL, 'sold'), (3, 1, 'sold'), (NULL, 1, 'sold')`,
  )
  const { send } = await startApp(t, database.url)
  t.equal((await send('GET', '/v1/inventory')).text, '[{"petId":3,"quantity":1,"status":"sold"}]')

  const losing = await startService(t, 9)
  await losing.database.query('ALTER TABLE inventory ALTER quantity DROP NOT NULL')
  t.match(await losing.send('GET', '/v1/inventory'), { status: 200, text: '"petId":2,' })
  await losing.database.query('UPDATE inventory SET quantity = NULL WHERE pet_id = 2')
  t.notMatch((await losing.send('GET', '/v1/inventory')).text, '"petId":2,')
})
