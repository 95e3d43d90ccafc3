import t from 'tap'
import { startApp } from '../support/app.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { startOwnServer } from '../support/own-server.ts'
import { startProgram } from '../support/program.ts'

t.test('a server that lacks what the service needs', async (t) => {
  const database = await startOwnServer(t)
  await database.query("INSERT INTO inventory VALUES (1, 1, 'sold'), (2, 2, 'sold')")
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

  await database.stop()
  const { send: sendLater } = await startApp(t, database.url)
  await database.start()
  const readiness = await eventually('the service to reach the server', async () => {
    const answer = await sendLater('GET', '/readyz')
    return answer.text.includes('cannot be reached') ? undefined : answer
  })
  t.equal(readiness.status, 503)
  t.match(readiness.text, reason)
  const list = await sendLater('GET', '/v1/inventory')
  t.equal(list.status, 503, list.text)
  t.equal((await sendLater('PATCH', '/v1/inventory/1', json({ quantity: 3 }))).status, 200)
})
