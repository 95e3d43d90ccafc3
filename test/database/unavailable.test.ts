import t, { type Test } from 'tap'
import { openDatabase } from '../../src/database/pool.ts'
import { requestLimits } from '../../src/database/pool-options.ts'
import { startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { type Answer, json } from '../support/http.ts'

function isUnavailable(t: Test, answer: Answer): void {
  isError(t, answer, 503, 'service_unavailable')
  t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
}

t.test('requests get a 503 when transaction_timeout ends a statement', async (t) => {
  const database = await testDatabase(t)
  const [known] = await database.query("SELECT FROM pg_settings WHERE name = 'transaction_timeout'")
  if (known === undefined) return t.comment('PostgreSQL before version 17 has no such limit')
  await addEntries(database, [['1', 9, 'available']])
  const options = encodeURIComponent('-c transaction_timeout=100')
  const { send } = await startApp(t, `${database.url}?options=${options}`)
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  isUnavailable(t, await send('GET', '/v1/inventory'))
  isUnavailable(t, await send('PATCH', '/v1/inventory/1', json({ quantity: 5 })))
  await release()
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 6 }))).status, 200)
})

t.test('every connection has its limits, and its name', async (t) => {
  const { url } = await testDatabase(t)
  const database = openDatabase({ url, size: 1, limits: requestLimits, onConnectionLost: () => {} })
  t.teardown(() => database.close())
  const settings = await database.query(
    `SELECT name, setting FROM pg_settings
     WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout', 'application_name')
     ORDER BY name`,
  )
  t.strictSame(settings, [
    { name: 'application_name', setting: 'petstore-inventory server' },
    { name: 'idle_in_transaction_session_timeout', setting: '5000' },
    { name: 'lock_timeout', setting: '250' },
    { name: 'statement_timeout', setting: '5000' },
  ])
})
