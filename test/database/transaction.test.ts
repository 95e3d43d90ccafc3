import t from 'tap'
import { inTransaction } from '../../src/database/transaction.ts'
import { addEntries, testDatabase } from '../support/database.ts'

t.test('a read-only transaction reads everything from one snapshot, and cannot write', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { signal } = new AbortController()
  await inTransaction({ url: database.url, readOnly: true, signal }, async (transaction) => {
    const entries = 'SELECT pet_id::text, quantity FROM inventory ORDER BY pet_id'
    const before = await transaction.query(entries)
    await addEntries(database, [['2', 5, 'sold']])
    await database.query('UPDATE inventory SET quantity = 0')
    t.strictSame(await transaction.query(entries), before)
    await t.rejects(transaction.change('UPDATE inventory SET quantity = 1'), { code: '25006' })
  })
})

t.test('a server that does not respond in time is an outage', async (t) => {
  const { url } = await testDatabase(t)
  const { signal } = new AbortController()
  await t.rejects(
    inTransaction({ url, readOnly: false, signal, answerTimeoutMs: 200 }, ({ query }) =>
      query('SELECT pg_sleep(60)'),
    ),
    { name: 'DatabaseUnavailableError' },
  )
})
