import { once } from 'node:events'
import { Agent } from 'node:http'
import t from 'tap'
import { apiKey, startApp, startService, type TestApp } from '../support/app.ts'
import { runCommand } from '../support/command.ts'
import { addEntries, addKey, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import { updateRequest } from '../support/messages.ts'
import { total } from '../support/metrics.ts'
import { openRaw, sendRaw } from '../support/raw.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

const DURATIONS = 'http_server_request_duration_seconds'

t.test('a failure of the database counts once for each caller that lost by it', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 9, 'available'],
    ['2', 9, 'available'],
    ['3', 9, 'available'],
  ])
  const outage = await startRelay(t, database.url)
  const { send, scrape } = await startApp(t, outage.url)
  const failures = async (pool: string): Promise<number> =>
    total(await scrape(), 'inventory_database_failures_total', { db_client_connection_pool_name: pool })
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id < 3')
  const updates = Array.from({ length: 10 }, (_, n) =>
    send('PATCH', `/v1/inventory/${1 + (n % 2)}`, json({ quantity: 5 })),
  )
  t.equal((await send('PATCH', '/v1/inventory/3', json({ quantity: 5 }))).status, 200)
  t.ok((await Promise.all(updates)).every(({ status }) => status === 503))
  await release()
  t.equal(await failures('requests'), 0, 'to wait for a lock is no failure of the database')
  outage.fail()
  const refused = await Promise.all(
    Array.from({ length: 10 }, () => send('PATCH', '/v1/inventory/3', json({ quantity: 5 }))),
  )
  t.ok(refused.every(({ status }) => status === 503))
  t.equal(await failures('requests'), 10)
})

t.test('requests count by route template, method and status, in the buckets of OpenTelemetry', async (t) => {
  const { send, port, scrape } = await startService(t, [['1', 9, 'available']])
  for (const petId of [1, 1, 2]) await send('PATCH', `/v1/inventory/${petId}`, json({ quantity: 5 }))
  await send('GET', '/v1/inventory')
  await callerOf(port)('GET', '/v1/inventory')
  await sendRaw(port, 'no HTTP\r\n\r\n')
  await sendRaw(port, 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n')
  const metrics = await scrape()
  const counted = (route: string, method: string, status: string): number =>
    total(metrics, `${DURATIONS}_count`, {
      http_route: route,
      http_request_method: method,
      http_response_status_code: status,
    })
  t.equal(counted('/v1/inventory/:petId', 'PATCH', '200'), 2)
  t.equal(counted('/v1/inventory/:petId', 'PATCH', '404'), 1)
  t.equal(counted('/v1/inventory', 'GET', '200'), 1)
  t.equal(counted('/v1/inventory', 'GET', '401'), 1)
  t.equal(total(metrics, 'inventory_http_malformed_requests_total', { http_response_status_code: '400' }), 1)
  t.equal(total(metrics, 'inventory_http_malformed_requests_total', { http_response_status_code: '405' }), 1)
  const lists = metrics.get(DURATIONS)?.series.filter(({ name, labels }) => {
    return name === `${DURATIONS}_bucket` && labels['http_response_status_code'] === '401'
  })
  t.strictSame(
    lists?.map(({ labels }) => labels['le']),
    '0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 +Inf'.split(' '),
  )
  t.equal(lists?.at(-1)?.value, 1)
  t.ok(total(metrics, `${DURATIONS}_sum`) > 0)
})

/** The number of completed requests by method, route and status. */
async function counts({ scrape }: TestApp): Promise<string[]> {
  const series =
    (await scrape()).get(DURATIONS)?.series.filter(({ name }) => name === `${DURATIONS}_count`) ?? []
  return series
    .map(({ labels, value }) => {
      const { http_request_method: method, http_route: route, http_response_status_code: status } = labels
      return `${method} ${route} ${status}: ${value}`
    })
    .sort()
}

t.test('made-up paths, ids and methods add no series', async (t) => {
  const app = await startService(t)
  const send = callerOf(app.port)
  for (const [index, method] of ['MKCOL', 'PROPFIND', 'PURGE', 'SUBSCRIBE'].entries()) {
    await send('GET', `/made-up/${index}?of=${index}`)
    await send('PATCH', `/v1/inventory/${index}`)
    await send(method, `/v1/${index}`)
    await send(method, '/livez')
  }
  t.strictSame(await counts(app), [
    'GET  404: 4',
    'PATCH /v1/inventory/:petId 401: 4',
    '_OTHER  401: 4',
    '_OTHER  404: 4',
  ])
})

t.test('a request that its caller gives up has a duration and no status', async (t) => {
  const app = await startService(t)
  const { socket } = await openRaw(app.port)
  socket.write(updateRequest(5, 'Expect: 100-continue\r\n').slice(0, -14))
  t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1.1 100/, 'the body is waited for')
  socket.destroy()
  const given = await eventually('the request to end', async () => {
    const found = await counts(app)
    return found.length > 0 ? found : undefined
  })
  t.strictSame(given, ['PATCH /v1/inventory/:petId : 1'])
})

t.test('metrics count batches, unchanged lists and connections', async (t) => {
  const pets = Array.from({ length: 20 }, (_, index) => String(index + 1))
  const { port, scrape } = await startService(
    t,
    pets.map((petId) => [petId, 9, 'available']),
  )
  const agent = new Agent({ keepAlive: true, maxSockets: 32 })
  t.teardown(() => agent.destroy())
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
  let rounds = 0
  const metrics = await eventually('a batch, an unchanged list and one that joined another', async () => {
    rounds++
    await Promise.all(
      pets.map((petId, quantity) => send('PATCH', `/v1/inventory/${petId}`, json({ quantity }))),
    )
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
  t.equal(metrics.get('db_client_connection_count')?.series.length, 6, 'used and idle ones of each pool')
  for (const [pool, size] of [
    ['requests', 9],
    ['lists', 1],
    ['probe', 1],
  ] as const) {
    const labels = { db_client_connection_pool_name: pool }
    t.equal(total(metrics, 'db_client_connection_max', labels), size)
    t.ok(total(metrics, 'db_client_connection_count', labels) >= 1, pool)
    t.equal(total(metrics, 'db_client_connection_pending_requests', labels), 0)
  }
  const age = Date.now() / 1000 - total(metrics, 'inventory_api_keys_read_timestamp_seconds')
  t.ok(age >= 0 && age < 60)
})

t.test('metrics have the number of entries by status', async (t) => {
  const { scrape } = await startService(t, [
    ['1', 9, 'available'],
    ['2', 0, 'available'],
    ['3', 0, 'sold'],
  ])
  const metrics = await eventually('the count', async () => {
    const found = await scrape()
    return found.get('inventory_entries')?.series.length === 3 ? found : undefined
  })
  const counts = (name: string): number[] =>
    ['available', 'pending', 'sold'].map((status) => total(metrics, name, { status }))
  t.strictSame(counts('inventory_entries'), [2, 0, 1])
  t.strictSame(counts('inventory_entries_out_of_stock'), [1, 0, 1])
})

t.test('metrics have the size of the history, if there is any', async (t) => {
  const { scrape, database } = await startService(t)
  t.strictSame((await scrape()).get('inventory_history_bytes')?.series ?? [], [])
  t.equal((await runCommand(t, ['history', 'on'], { env: { DATABASE_URL: database.url } })).code, 0)
  await addEntries(database, [['1', 9, 'available']])
  const metrics = await scrape()
  t.ok(total(metrics, 'inventory_history_bytes') > 0)
  t.ok(total(metrics, 'inventory_history_changes') >= 0)
  t.ok(total(metrics, 'inventory_history_oldest_timestamp_seconds') > 1e9)
})

t.test('metrics have the time of the last recorded backup, if there is any', async (t) => {
  const { scrape, database } = await startService(t)
  const name = new URL(database.url).pathname.slice(1)
  t.strictSame((await scrape()).get('inventory_backup_timestamp_seconds')?.series ?? [], [])
  await database.query(`COMMENT ON DATABASE "${name}" IS 'Last backup: 2026-01-02T03:04:05Z'`)
  t.equal(total(await scrape(), 'inventory_backup_timestamp_seconds'), Date.UTC(2026, 0, 2, 3, 4, 5) / 1000)
})

t.test('metrics say whether the service is ready, and why not, without a probe', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  const grant = ['migrate', 'up', '--server-role', role.name]
  t.equal((await runCommand(t, grant, { env: { DATABASE_URL: database.url } })).code, 0)
  const outage = await startRelay(t, role.urlOf(database.url))
  const { scrape } = await startApp(t, outage.url)
  const reasons = [
    'unreachable',
    'read_only',
    'former_primary',
    'schema_behind',
    'privileges',
    'row_security',
    'unsupported',
  ]
  const isSeen = async (expected: string | undefined): Promise<true | undefined> => {
    const metrics = await scrape()
    const seen = reasons.filter((reason) => total(metrics, 'inventory_not_ready', { reason }) === 1)
    const isReady = total(metrics, 'inventory_ready') === 1
    const isExpected = expected === undefined ? seen.length === 0 : seen.join() === expected
    return isExpected && isReady === (expected === undefined) ? true : undefined
  }
  const see = async (expected: string | undefined): Promise<void> => {
    t.ok(await eventually(expected ?? 'ready', () => isSeen(expected)), expected ?? 'ready')
  }
  await see(undefined)
  for (const privilege of ['SELECT ON pgmigrations', 'UPDATE (quantity) ON inventory']) {
    await database.query(`REVOKE ${privilege} FROM ${role.name}`)
    await see('privileges')
    await database.query(`GRANT ${privilege} TO ${role.name}`)
    await see(undefined)
  }
  await database.query("UPDATE pgmigrations SET name = name || '-later'")
  await see('schema_behind')
  await database.query("UPDATE pgmigrations SET name = replace(name, '-later', '')")
  await see(undefined)
  outage.stall()
  await see('unreachable')
  await outage.restore()
  await see(undefined)
  // For new sessions alone, as the setting counts from a session's start.
  await database.query(`ALTER ROLE ${role.name} SET default_transaction_read_only = on`)
  await database.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1', [
    role.name,
  ])
  await see('read_only')
  await database.query(`ALTER ROLE ${role.name} RESET default_transaction_read_only`)
  await see(undefined)
})

t.test('metrics have the times at which keys were created and expire', async (t) => {
  const database = await testDatabase(t)
  await addKey(database, 'billing', '3 days')
  const { scrape } = await startApp(t, database.url)
  const metrics = await scrape()
  const days = (name: string): number =>
    Math.round((total(metrics, name, { key: 'billing' }) - Date.now() / 1000) / 86_400)
  t.equal(days('inventory_api_key_expiry_timestamp_seconds'), 3)
  t.equal(days('inventory_api_key_created_timestamp_seconds'), -1)
  await database.query('UPDATE api_keys SET revoked_at = now()')
  await eventually('the revoked key to leave the metrics', async () => {
    const after = await scrape()
    const names = [
      'inventory_api_key_expiry_timestamp_seconds',
      'inventory_api_key_created_timestamp_seconds',
    ]
    return names.every((name) => total(after, name) === 0) ? true : undefined
  })
})
