import t from 'tap'
import { startService } from '../../support/app.ts'

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
