import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase, waitForLocks } from '../support/database.ts'
import { json } from '../support/http.ts'
import { outageOf } from '../support/outage.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

t.test('writes one line for each request: id, method, route, path, status, duration and key', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { send, log, close } = await startApp(t, database.url)
  await send('PATCH', '/v1/inventory/1?token=secret', json({ quantity: 5 }))
  await send('PATCH', '/v1/inventory/2', json({ quantity: 5 }))
  await send('GET', '/v1/nothing')
  await send('POST', '/v1/inventory')
  await send('GET', '/v1/inventory/%zz')
  await close()
  const lines = log.filter((line) => line['msg'] === 'request')
  t.strictSame(
    lines.map(({ method, route, path, status, key }) => ({ method, route, path, status, key })),
    [
      { method: 'PATCH', route: '/v1/inventory/:petId', path: '/v1/inventory/1', status: 200, key: 'tests' },
      { method: 'PATCH', route: '/v1/inventory/:petId', path: '/v1/inventory/2', status: 404, key: 'tests' },
      { method: 'GET', route: null, path: '/v1/nothing', status: 404, key: 'tests' },
      { method: 'POST', route: '/v1/inventory', path: '/v1/inventory', status: 405, key: 'tests' },
      { method: 'GET', route: null, path: '/v1/inventory/%zz', status: 400, key: null },
    ],
  )
  for (const line of lines) {
    t.type(line['durationMs'], 'number')
    t.equal(line['client'], '127.0.0.1')
  }
  t.notMatch(JSON.stringify(log), /secret/)
  t.notMatch(JSON.stringify(log), apiKey)
})

t.test('takes a well-formed X-Request-Id, replaces any other, and returns it', async (t) => {
  const database = await testDatabase(t)
  const { send, log, close } = await startApp(t, database.url)
  const good = ['a', 'A-Z.a_z-09', 'x'.repeat(128)]
  const bad = ['', ' ', 'x'.repeat(129), 'a b', 'a"b', 'ä', '{"a":1}', '../..']
  for (const id of good) {
    t.equal(
      (await send('GET', '/v1/inventory', { headers: { 'x-request-id': id } })).headers['x-request-id'],
      id,
    )
  }
  for (const id of bad) {
    const answer = await send('GET', '/v1/inventory', {
      headers: { 'x-request-id': id },
    })
    t.match(answer.headers['x-request-id'], /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, id)
  }
  await close()
  const ids = log.filter((line) => line['msg'] === 'request').map((line) => line['requestId'])
  t.equal(new Set(ids).size, good.length + bad.length)
  t.ok(good.every((id) => ids.includes(id)))
})

t.test('logs the path of a URL in the request line, and not the login in it', async (t) => {
  const database = await testDatabase(t)
  const { port, log, close } = await startApp(t, database.url)
  for (const base of ['http://caller:secret@host', 'ftp://caller:secret@host', 'http://host'])
    await sendRaw(port, `GET ${base}/docs?token=secret HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
  await close()
  t.match(
    log.filter(({ msg }) => msg === 'request'),
    [
      { path: '/docs', status: 400 },
      { path: '/docs', status: 400 },
      { path: '/docs', status: 200 },
    ],
  )
  t.notMatch(JSON.stringify(log), /secret/)
})

t.test('keeps a hostile path in one line', async (t) => {
  const database = await testDatabase(t)
  const { port, log, close } = await startApp(t, database.url)
  await sendRaw(port, 'GET /a%0a{"level":60,"msg":"forged"} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  await close()
  t.match(
    log.filter(({ msg }) => msg === 'request'),
    [{ path: '/a%0a{"level":60,"msg":"forged"}', status: 404 }],
  )
  t.notOk(log.some((line) => line['msg'] === 'forged'))
})

t.test('writes one line for what is refused before it is a request, with its client', async (t) => {
  const database = await testDatabase(t)
  const { port, log, close } = await startApp(t, database.url)
  const sent = [
    ['CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 405, 'CONNECT'],
    ['no HTTP\r\n\r\n', 400, 'HPE_INVALID_METHOD'],
  ] as const
  const ids: (string | undefined)[] = []
  for (const [bytes] of sent) ids.push(parseResponse(await sendRaw(port, bytes)).headers.get('x-request-id'))
  await close()
  const lines = log.filter(({ msg }) => msg === 'malformed request refused')
  t.equal(lines.length, sent.length)
  t.match(
    lines,
    sent.map(([, status, reason], index) => ({ requestId: ids[index], status, reason, client: '127.0.0.1' })),
  )
})

t.test('says which requests their callers gave up', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port, log, close } = await startApp(t, database.url)
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const { socket } = await openRaw(port)
  socket.write(`GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`)
  await waitForLocks(database)
  // A reset: a connection that is only closed may be one whose client still reads. It is read before the list comes.
  socket.resetAndDestroy()
  await release()
  await close()
  t.match(
    log.find((line) => line['route'] === '/v1/inventory'),
    { aborted: true, client: '127.0.0.1' },
    'and who they were',
  )
})

t.test('has no status for a request that got no response', async (t) => {
  const database = await testDatabase(t)
  const { port, log, close } = await startApp(t, database.url)
  const { socket } = await openRaw(port)
  const headers = `Authorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 14`
  socket.write(`PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${headers}\r\nExpect: 100-continue\r\n\r\n`)
  await once(socket, 'data')
  socket.resetAndDestroy()
  await close()
  t.match(
    log.filter(({ msg }) => msg === 'request'),
    [{ route: '/v1/inventory/:petId', status: null, aborted: true }],
  )
})

t.test('in an outage a refused request writes its one line, and the reason is written once', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const outage = await outageOf(t, database.url)
  const { send, log } = await startApp(t, outage.url)
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))).status, 200)
  const { etag = '' } = (await send('GET', '/v1/inventory')).headers
  const reported = (message: string): typeof log => log.filter(({ msg }) => msg === message)
  const refusals = 'the database cannot serve requests; answering 503'
  const recovery = 'the database serves requests again'

  for (let round = 1; round <= 2; round++) {
    await outage.cut()
    // Their reasons may differ from those of the next ones.
    await Promise.all(Array.from({ length: 10 }, () => send('GET', '/v1/inventory')))
    const before = log.length
    for (let n = 0; n < 10; n++) {
      t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))).status, 503)
    }
    const requests = log.slice(before).filter(({ msg }) => msg === 'request')
    t.equal(requests.length, 10)
    t.ok(requests.every((line) => JSON.stringify(line).length < 400 && line['status'] === 503))
    const reasons = reported(refusals).map(({ err }) => JSON.stringify(err))
    t.ok(reasons.length >= round && reasons.length <= 3 * round, `${reasons.length} reasons`)
    t.match(reasons.at(-1), /ECONNREFUSED/)
    // After a second without a failure, which the next response of the database would end.
    await setTimeout(1100)
    t.equal((await send('GET', '/livez')).status, 200)
    t.equal(reported(recovery).length, round - 1, 'a health check is no sign of the database')
    await outage.restore()
    for (let attempt = 0; reported(recovery).length < round && attempt < 300; attempt++) {
      if (round === 1) await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
      else await send('GET', '/v1/inventory', { headers: { 'if-none-match': etag } })
      await setTimeout(50)
    }
    t.equal(reported(recovery).length, round)
    t.ok(Number(reported(recovery).at(-1)?.['refused']) >= 20)
  }
})

t.test('believes X-Forwarded-For from trusted proxies alone', async (t) => {
  const database = await testDatabase(t)
  const headers = { 'x-forwarded-for': '203.0.113.9' }
  const alone = await startApp(t, database.url)
  await alone.send('GET', '/v1/inventory', { headers })
  await alone.close()
  t.equal(alone.log.find((line) => line['msg'] === 'request')?.['client'], '127.0.0.1')
  const proxied = await startApp(t, database.url, { env: { TRUST_PROXY: '127.0.0.0/8' } })
  await proxied.send('GET', '/v1/inventory', { headers })
  await proxied.close()
  t.equal(proxied.log.find((line) => line['msg'] === 'request')?.['client'], '203.0.113.9')
})
