import t from 'tap'
import { requestLimits } from '../../src/database/pool-options.ts'
import { startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { json } from '../support/http.ts'
import { backend, openPool } from '../support/pool.ts'
import { startRelay } from '../support/relay.ts'

t.test('a connection whose settings did not take effect is refused, as are those of a pooler', async (t) => {
  // A pooler that ignores the options of the startup message leaves the parameter unset.
  const { pool } = await openPool(t, { settings: { 'inventory.session': '' } })
  await t.rejects(pool.query(backend), {
    cause: {
      message: 'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)',
    },
  })
})

t.test('a server that answers the login, but no statement, is given up', { timeout: 20_000 }, async (t) => {
  const { url } = await testDatabase(t)
  const relay = await startRelay(t, url, {
    towardsDatabase: (bytes) => (bytes.includes('SELECT') ? new Promise(() => {}) : bytes),
  })
  const { pool } = await openPool(t, { url: relay.url, limits: { ...requestLimits, connect: 500 } })
  await t.rejects(pool.query(backend), { name: 'DatabaseUnavailableError' })
})

t.test('requests get a 503 when transaction_timeout ends a statement', async (t) => {
  const database = await testDatabase(t)
  const [known] = await database.query("SELECT FROM pg_settings WHERE name = 'transaction_timeout'")
  if (known === undefined) return t.comment('PostgreSQL before version 17 has no such limit')
  await addEntries(database, [['1', 9, 'available']])
  const options = encodeURIComponent('-c transaction_timeout=100')
  const { send } = await startApp(t, `${database.url}?options=${options}`)
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  isError(t, await send('GET', '/v1/inventory'), 503, 'service_unavailable')
  isError(t, await send('PATCH', '/v1/inventory/1', json({ quantity: 5 })), 503, 'service_unavailable')
  await release()
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 6 }))).status, 200)
})
