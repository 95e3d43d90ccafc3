import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { inTransaction } from '../../src/database/transaction.ts'
import { addEntries, testDatabase } from '../support/database.ts'

t.test('a read-only transaction reads everything from one snapshot, and cannot write', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  await inTransaction({ url: database.url, readOnly: true }, async (transaction) => {
    const entries = 'SELECT pet_id::text, quantity FROM inventory ORDER BY pet_id'
    const before = await transaction.query(entries)
    await addEntries(database, [['2', 5, 'sold']])
    await database.query('UPDATE inventory SET quantity = 0')
    t.strictSame(await transaction.query(entries), before)
    await t.rejects(transaction.change('UPDATE inventory SET quantity = 1'), { code: '25006' })
  })
})

t.test('a connection that is lost between two statements is an outage', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url, readOnly: false }, async ({ query }) => {
    const [row] = await query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await database.query('SELECT pg_terminate_backend($1, 10000)', [row?.pid])
    // Lets the end of the connection arrive, which an event reports.
    await setTimeout(20)
    await query('SELECT 1')
  })
  await t.rejects(transaction, { name: 'DatabaseUnavailableError' })
})

t.test('a transaction with a failed statement is not reported as committed', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url, readOnly: false }, async ({ change }) => {
    await change("INSERT INTO inventory VALUES (1, 1, 'sold')")
    await t.rejects(change('SELECT 1 / 0'), { code: '22012' })
  })
  await t.rejects(transaction, { message: /rolled back/ })
  t.strictSame(await database.query('SELECT FROM inventory'), [])
})

t.test('a transaction that PostgreSQL refuses to commit is no outage, nor unknown', async (t) => {
  const database = await testDatabase(t)
  await database.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no'; END $$;
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON inventory DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION refuse()`)
  const transaction = inTransaction({ url: database.url, readOnly: false }, ({ change }) =>
    change("INSERT INTO inventory VALUES (1, 1, 'sold')"),
  )
  await t.rejects(transaction, { code: 'P0001' })
})
