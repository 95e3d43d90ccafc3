import t from 'tap'
import { longLimits, startApp } from '../../support/app.ts'
import { testDatabase } from '../../support/database.ts'
import { isError } from '../../support/http.ts'
import { startRelay } from '../../support/relay.ts'

t.test('a list is read whole after its changes took too long to find', async (t) => {
  const database = await testDatabase(t, { entries: 2 })
  // Changes never arrive; everything else does at once.
  const relay = await startRelay(t, database.url, {
    towardsDatabase: (bytes) => (bytes.includes('inventory_list_changes') ? new Promise(() => {}) : bytes),
  })
  const { send, update, metric } = await startApp(t, relay.url, {
    timings: { lists: { ...longLimits.lists, answer: 5000 } },
  })
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  await update(1, 1)
  isError(t, await send('GET', '/v1/inventory'), 503, 'service_unavailable')
  for (const quantity of [2, 3]) {
    await update(1, quantity)
    t.match(await send('GET', '/v1/inventory'), { status: 200, text: `"quantity":${quantity},` })
  }
  t.equal(await metric('inventory_lists_total', { result: 'read' }), 3)
})

t.test('a list whose connection is lost in its middle is read again, from the beginning', async (t) => {
  const database = await testDatabase(t, { entries: 20_000 })
  let losses = 0
  let size = 0
  const relay = await startRelay(t, database.url, {
    towardsClient: (bytes) => {
      size += bytes.length
      if (losses === 0 || size < 400_000) return bytes
      losses--
      size = 0
      return undefined
    },
  })
  const { send, log } = await startApp(t, relay.url)
  losses = 1
  const { status, text } = await send('GET', '/v1/inventory')
  t.equal(status, 200)
  const ids = JSON.parse(text).map(({ petId }: { petId: number }) => petId)
  t.strictSame(
    ids,
    Array.from({ length: 20_000 }, (_, index) => index + 1),
  )
  t.equal(
    log.filter(({ msg }) => msg === 'a list is read again, because its database connection was lost').length,
    1,
  )

  await database.query('UPDATE inventory SET quantity = 1')
  losses = 2
  isError(t, await send('GET', '/v1/inventory'), 503, 'service_unavailable')
})
