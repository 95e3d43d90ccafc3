import t from 'tap'
import { appTimeouts } from '../../src/http/app.ts'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { callerOf } from '../support/http.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

const host = 'Host: inventory.test\r\n'
const authorization = `Authorization: Bearer ${apiKey}\r\n`
const json = 'Content-Type: application/json\r\n'

t.test('a 404 for a path says where the inventory and its documentation are', async (t) => {
  const database = await testDatabase(t)
  const { send } = await startApp(t, database.url)
  for (const path of ['/', '/inventory', '/v1', '/v1/', '/v1/inventory/', '/v2/inventory', '/docs/x']) {
    const { status, text } = await send('GET', path)
    t.equal(status, 404, path)
    t.match(text, /\/v1\/inventory\b.*\/docs\b/, path)
  }
})

t.test('a 415 names what was sent', async (t) => {
  const database = await testDatabase(t)
  const { send } = await startApp(t, database.url)
  const messageFor = async (headers: Record<string, string>): Promise<string> => {
    const { status, text } = await send('PATCH', '/v1/inventory/1', { headers, body: '{"quantity":5}' })
    t.equal(status, 415)
    return String(Object(JSON.parse(text)).message)
  }
  t.match(await messageFor({ 'content-type': 'text/plain' }), /Content-Type: text\/plain\./)
  t.match(await messageFor({}), /no Content-Type\./)
  const latin1 = { 'content-type': 'application/json; charset=latin1' }
  t.match(await messageFor(latin1), /Content-Type: application\/json; charset=latin1\./)
  const compressed = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
  t.match(await messageFor(compressed), /Content-Encoding: gzip\./)
  const long = await messageFor({ 'content-type': `text/${'"\\<x>'.repeat(1000)}` })
  t.ok(long.length < 300, 'a long one is cut')
})

t.test('a 400 for malformed HTTP says what to check', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const { socket, received } = await openRaw(port)
  socket.end(
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}Content-Length: 14\r\n\r\n{"qua`,
  )
  const check = /check that its path is percent-encoded, and its headers and the length of its body/
  for (const text of [await received, await sendRaw(port, `GET /v1/é HTTP/1.1\r\n${host}\r\n`)]) {
    t.equal(parseResponse(text).status, 400)
    t.match(parseResponse(text).body, check)
  }
})

t.test('a request that does not arrive in time gets a 408', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url, { timings: { app: { ...appTimeouts, arrivalMs: 1000 } } })
  const half = 'Content-Length: 14\r\n\r\n{"qua'
  const [nothing, answered] = await Promise.all([
    sendRaw(port, ''),
    sendRaw(port, `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${json}${half}`),
  ])
  t.equal(nothing, '', 'a connection on which nothing was asked gets no answer')
  t.strictSame(
    answered.match(/HTTP\/1\.1 \d+/g),
    ['HTTP/1.1 401'],
    'an answered request gets no second answer',
  )
  const halves = [
    `GET /v1/inventory HTTP/1.1\r\n${host}`,
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}Content-Length: 14\r\n\r\n{"qua`,
  ]
  await Promise.all(
    halves.map(async (half) => {
      const { headers, ...answer } = parseResponse(await sendRaw(port, half))
      isError(t, { ...answer, contentType: headers.get('content-type') }, 408, 'request_timeout')
    }),
  )
})

t.test('a 500 has no details, and the log has them under the same id', async (t) => {
  const database = await testDatabase(t)
  const { send, log } = await startApp(t, database.url)
  await addEntries(database, [['1', 9, 'available']])
  await database.query(
    `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 'a secret of the table'::integer; END $$`,
  )
  await database.query('CREATE TRIGGER fail BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION fail()')
  const failed = await send('PATCH', '/v1/inventory/1', {
    headers: { 'content-type': 'application/json', 'x-request-id': 'the-failing-one' },
    body: '{"quantity":5}',
  })
  isError(
    t,
    { ...failed, contentType: failed.headers['content-type'], body: failed.text },
    500,
    'internal_error',
  )
  t.notMatch(failed.text, /secret|table|22P02/)
  t.equal(failed.headers['x-request-id'], 'the-failing-one')
  const line = log.find((entry) => entry['msg'] === 'request failed')
  t.equal(line?.['requestId'], 'the-failing-one')
  t.match(JSON.stringify(line?.['err']), /a secret of the table/)
})

t.test('a malformed key and an unknown one get the same response', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const send = callerOf(port)
  const bodies = await Promise.all(
    [{}, { authorization: 'Bearer x' }, { authorization: 'x' }].map(
      async (headers) => (await send('GET', '/v1/inventory', { headers })).text,
    ),
  )
  t.equal(new Set(bodies).size, 1)
})
