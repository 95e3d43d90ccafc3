import { once } from 'node:events'
import t from 'tap'
import { startService } from '../support/app.ts'
import { addKey } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { createSender, json } from '../support/http.ts'
import { updateRequest } from '../support/messages.ts'
import { findSamples, total } from '../support/metrics.ts'
import { persistentCaller } from '../support/program.ts'
import { openRaw, sendRaw } from '../support/raw.ts'

const DURATIONS = 'http_server_request_duration_seconds'

t.test('requests count by route template, method and status, in the buckets of OpenTelemetry', async (t) => {
  const { send, update, port, scrape } = await startService(t, 1)
  const stranger = createSender(port)
  for (const petId of [1, 1, 2]) await update(petId, 5)
  await send('GET', '/v1/inventory')
  // Made-up paths, ids and methods add no series.
  for (const [index, method] of ['MKCOL', 'PROPFIND', 'PURGE', 'SUBSCRIBE'].entries()) {
    await stranger('GET', `/made-up/${index}?of=${index}`)
    await stranger('PATCH', `/v1/inventory/${index}`)
    await stranger(method, `/v1/${index}`)
    await stranger(method, '/livez')
  }
  await sendRaw(port, 'no HTTP\r\n\r\n')
  const { socket } = await openRaw(port)
  socket.write(updateRequest(5, 'Expect: 100-continue\r\n').slice(0, -14))
  t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1.1 100/, 'the body is waited for')
  // Not closed, which would count as an incomplete request.
  socket.resetAndDestroy()
  const metrics = await eventually('the request that was given up', async () => {
    const found = await scrape()
    return total(found, `${DURATIONS}_count`, { http_response_status_code: '' }) > 0 ? found : undefined
  })
  const counts = findSamples(metrics, `${DURATIONS}_count`).map(({ labels, value }) => {
    const { http_request_method: method, http_route: route, http_response_status_code: status } = labels
    return `${method} ${route} ${status}: ${value}`
  })
  t.strictSame(counts.sort(), [
    'GET  404: 4',
    'GET /v1/inventory 200: 1',
    'PATCH /v1/inventory/:petId 200: 2',
    'PATCH /v1/inventory/:petId 401: 4',
    'PATCH /v1/inventory/:petId 404: 1',
    'PATCH /v1/inventory/:petId : 1',
    '_OTHER  401: 4',
    '_OTHER  405: 4',
  ])
  t.equal(total(metrics, 'inventory_http_malformed_requests_total', { http_response_status_code: '400' }), 1)
  const buckets = findSamples(metrics, `${DURATIONS}_bucket`, { http_response_status_code: '200' })
  const bounds = '0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 +Inf'.split(' ')
  t.strictSame([...new Set(buckets.map(({ labels }) => labels['le']))], bounds)
  t.ok(total(metrics, `${DURATIONS}_sum`) > 0)
})

t.test('metrics count batches, unchanged lists and connections', async (t) => {
  const pets = Array.from({ length: 20 }, (_, index) => index + 1)
  const { port, scrape } = await startService(t, 20)
  const send = persistentCaller(t, port, 32)
  let rounds = 0
  const metrics = await eventually('a batch, an unchanged list and one that joined another', async () => {
    rounds++
    await Promise.all(pets.map((pet) => send('PATCH', `/v1/inventory/${pet}`, json({ quantity: rounds }))))
    await Promise.all(Array.from({ length: 20 }, () => send('GET', '/v1/inventory')))
    await send('GET', '/v1/inventory')
    const metrics = await scrape()
    const isBatched = total(metrics, 'inventory_update_batch_size_count') < rounds * 20
    const isListed = (result: string): boolean => total(metrics, 'inventory_lists_total', { result }) > 0
    return isBatched && isListed('unchanged') && isListed('joined') ? metrics : undefined
  })
  t.equal(total(metrics, 'inventory_update_batch_size_sum'), rounds * 20, 'each update was in a batch')
  t.equal(total(metrics, 'inventory_updates_waiting'), 0)
  t.equal(total(metrics, 'inventory_lists_total'), rounds * 21, 'each list has a cost')
  t.equal(findSamples(metrics, 'db_client_connection_count').length, 6, 'used and idle ones of each pool')
  for (const [pool, size] of Object.entries({ requests: 9, lists: 1, probe: 1 })) {
    const labels = { db_client_connection_pool_name: pool }
    t.equal(total(metrics, 'db_client_connection_max', labels), size, pool)
    t.ok(total(metrics, 'db_client_connection_count', labels) >= 1, pool)
    t.equal(total(metrics, 'db_client_connection_pending_requests', labels), 0, pool)
  }
  const age = Date.now() / 1000 - total(metrics, 'inventory_api_keys_read_timestamp_seconds')
  t.ok(age >= 0 && age < 60)
})

t.test('metrics have the stock, the last backup and the expiry of keys', async (t) => {
  const entries = ['1,9,available', '2,0,available', '3,0,sold']
  const { scrape, metric, database } = await startService(t, entries)
  const optional = ['inventory_backup_timestamp_seconds', 'inventory_api_key_expiry_timestamp_seconds']
  const before = await eventually('the count of the entries', async () => {
    const found = await scrape()
    return findSamples(found, 'inventory_entries').length === 3 ? found : undefined
  })
  const stock = (name: string): number[] =>
    ['available', 'pending', 'sold'].map((status) => total(before, name, { status }))
  t.strictSame(stock('inventory_entries'), [2, 0, 1])
  t.strictSame(stock('inventory_entries_out_of_stock'), [1, 0, 1])
  for (const name of optional) t.strictSame(findSamples(before, name), [], name)

  await database.query(`COMMENT ON DATABASE "${database.name}" IS 'Last backup: 2026-01-02T03:04:05Z'`)
  const revoke = (name: string, after: string) =>
    database.query(`UPDATE api_keys SET revoked_at = now() + interval '${after}' WHERE name = '${name}'`)
  await addKey(database, 'unending')
  await addKey(database, 'past', '-1 hour')
  await addKey(database, 'rotated', '1 day')
  await revoke('rotated', '1 hour')
  await addKey(database, 'rotated', '2 days')
  await addKey(database, 'shortened', '9 days')
  await revoke('shortened', '5 days')
  await addKey(database, 'shortened', '2 days')
  await addKey(database, 'billing', '3 days')
  const expiries = async () => findSamples(await scrape(), 'inventory_api_key_expiry_timestamp_seconds')
  const ends = await eventually('the keys', async () => {
    const found = await expiries()
    return found.length > 2 && found
  })
  const daysTo = (time: number): number => Math.round((time - Date.now() / 1000) / 86_400)
  const days = ends.map(({ labels, value }) => [labels['key'], daysTo(value)])
  t.strictSame(Object.fromEntries(days), { rotated: 2, shortened: 5, billing: 3 })
  t.equal(await metric('inventory_backup_timestamp_seconds'), Date.UTC(2026, 0, 2, 3, 4, 5) / 1000)
  await database.query('UPDATE api_keys SET revoked_at = now()')
  await eventually('the revoked keys to leave', async () => (await expiries()).length === 0)
})
