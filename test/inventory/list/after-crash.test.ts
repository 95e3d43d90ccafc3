import t from 'tap'
import { startApp } from '../../support/app.ts'
import { startOwnServer } from '../../support/own-server.ts'

t.test('reads the entries again after PostgreSQL has recovered from a crash', async (t) => {
  // Nothing but a commit writes the log to the disk, so that a crash undoes what came after the last one.
  const database = await startOwnServer(t, { wal_writer_delay: '10s', autovacuum: 'off' })
  const transactions = async (): Promise<unknown> => (await database.query('SELECT pg_current_snapshot()'))[0]
  await database.query("INSERT INTO inventory VALUES (1, 0, 'available')")
  await database.query('CHECKPOINT')
  const { send } = await startApp(t, database.url)
  await database.query('BEGIN; UPDATE inventory SET quantity = 1; ROLLBACK')
  t.match((await send('GET', '/v1/inventory')).text, '"quantity":0')
  const before = await transactions()
  await database.crash()
  await database.query('UPDATE inventory SET quantity = 2')
  t.strictSame(await transactions(), before, 'the number of the transaction was given out again')
  t.match((await send('GET', '/v1/inventory')).text, '"quantity":2')
})
