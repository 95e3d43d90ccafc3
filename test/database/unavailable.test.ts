import t, { type Test } from 'tap'
import { startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { type Answer, json } from '../support/http.ts'
import { openPool } from '../support/pool.ts'

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
  const { pool } = await openPool(t)
  const names = [
    'application_name',
    'idle_in_transaction_session_timeout',
    'lock_timeout',
    'statement_timeout',
  ]
  const settings = await Promise.all(
    names.map((name) => pool.query(`SELECT current_setting('${name}') AS is`)),
  )
  t.strictSame(
    settings.map(([row]) => row?.['is']),
    ['petstore-inventory server', '5s', '250ms', '5s'],
  )
})
