import t from 'tap'
import { startApp, startService } from '../../support/app.ts'
import { testDatabase } from '../../support/database.ts'

t.test('the list has every entry in ascending petId, with exact ids', async (t) => {
  const { send } = await startService(t, [
    ['9007199254740993', 1, 'available'],
    ['10', 2147483647, 'pending'],
    ['-9223372036854775808', 0, 'sold'],
    ['9223372036854775807', 5, 'available'],
    ['9', 3, 'sold'],
    ['0', 4, 'pending'],
  ])
  const answer = await send('GET', '/v1/inventory')
  t.equal(answer.headers['content-type'], 'application/json; charset=utf-8')
  t.equal(
    answer.text,
    '[{"petId":-9223372036854775808,"quantity":0,"status":"sold"},' +
      '{"petId":0,"quantity":4,"status":"pending"},' +
      '{"petId":9,"quantity":3,"status":"sold"},' +
      '{"petId":10,"quantity":2147483647,"status":"pending"},' +
      '{"petId":9007199254740993,"quantity":1,"status":"available"},' +
      '{"petId":9223372036854775807,"quantity":5,"status":"available"}]',
  )
})

t.test('the list has no part of a transaction', async (t) => {
  const { database, send } = await startService(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, 500) n")
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
  t.equal((await send('GET', '/v1/inventory?limit=1&petId=x')).status, 200)
  t.equal(
    (await send('GET', '/v1/inventory', { headers: { 'content-type': 'text/xml' }, body: '<a/>' })).status,
    200,
  )
})

t.test('a list of a table without constraints leaves out the rows with a missing value', async (t) => {
  const database = await testDatabase(t)
  await database.query(
    `DROP TABLE inventory; CREATE TABLE inventory (pet_id bigint, quantity integer, status text);
     INSERT INTO inventory VALUES (NULL, 1, 'sold'), (2, NULL, 'sold'), (3, 1, 'sold'), (NULL, 1, 'sold')`,
  )
  const { send } = await startApp(t, database.url)
  t.equal((await send('GET', '/v1/inventory')).text, '[{"petId":3,"quantity":1,"status":"sold"}]')
})

t.test('a list leaves out an entry that loses a value after the list before', async (t) => {
  const { database, send } = await startService(t)
  await database.query("INSERT INTO inventory SELECT n, 1, 'sold' FROM generate_series(1, 9) n")
  await database.query('ALTER TABLE inventory ALTER quantity DROP NOT NULL')
  t.match(await send('GET', '/v1/inventory'), { status: 200, text: '"petId":2,' })
  await database.query('UPDATE inventory SET quantity = NULL WHERE pet_id = 2')
  t.notMatch((await send('GET', '/v1/inventory')).text, '"petId":2,')
})
