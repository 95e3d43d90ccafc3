import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { inTransaction } from '../../src/database/admin/transaction.ts'
import { testDatabase } from '../support/database.ts'

t.test('a connection that is lost between two statements is an outage', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url }, async ({ query }) => {
    const [row] = await query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await database.query('SELECT pg_terminate_backend($1, 10000)', [row?.pid])
    // Lets the end of the connection arrive, which an event reports.
    await setTimeout(20)
    await query('SELECT 1')
  })
  t.match(await transaction.catch((error: unknown) => error), { outcome: 'rolledBack', reason: 'lost' })
})

t.test('a transaction with a failed statement is not reported as committed', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url }, async ({ change }) => {
    await change("INSERT INTO inventory VALUES (1, 1, 'sold')")
    await t.rejects(change('SELECT 1 / 0'), { code: '22012' })
  })
  await t.rejects(transaction, { message: /rolled back/ })
  t.strictSame(await database.query('SELECT FROM inventory'), [])
})
