import t from 'tap'
import { startApp } from '../support/app.ts'
import { json } from '../support/http.ts'
import { startOwnServer } from '../support/own-server.ts'
import { startProgram } from '../support/program.ts'

t.test('a server that lacks what the service needs', async (t) => {
  const database = await startOwnServer(t)
  await database.query("INSERT INTO inventory VALUES (1, 1, 'sold'), (2, 2, 'sold')")
  const { send } = await startApp(t, database.url)
  t.equal((await send('GET', '/readyz')).status, 200)
  // As it is on a server that speaks PostgreSQL's protocol and has another storage.
  await database.query(
    'SET allow_system_table_mods = on; ALTER FUNCTION pg_catalog.pg_current_snapshot() RENAME TO pg_former_snapshot',
  )

  const reason =
    'The database does not support pg_current_snapshot(), the snapshot of a transaction, which this service needs.'
  const started = await startProgram(t, 'server', { env: { DATABASE_URL: database.url, PORT: '0' } })
  const { code, stderr } = await started.ended
  t.equal(code, 1)
  t.match(stderr, `petstore-inventory: ${reason}`)
  t.notMatch(stderr, /\n {4}at /, 'no stack trace')

  const { send: sendLater } = await startApp(t, database.url)
  const readiness = await sendLater('GET', '/readyz')
  t.equal(readiness.status, 503)
  t.match(readiness.text, reason)
  for (const answer of [await sendLater('GET', '/v1/inventory'), await send('GET', '/v1/inventory')])
    t.equal(answer.status, 503, answer.text)
  t.equal((await sendLater('PATCH', '/v1/inventory/1', json({ quantity: 3 }))).status, 200)
})
