import { once } from 'node:events'
import { request } from 'node:http'
import t from 'tap'
import { appTimeouts } from '../../src/http/app.ts'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { callerOf } from '../support/http.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

const host = 'Host: inventory.test\r\n'
const authorization = `Authorization: Bearer ${apiKey}\r\n`
const close = 'Connection: close\r\n'
const common = `${host}${authorization}${close}`
const json = 'Content-Type: application/json\r\n'

/** That many headers, the common three at the end. */
function manyHeaders(count: number): string {
  return `${'X: 1\r\n'.repeat(count - 3)}${common}`
}

/** What is sent, byte for byte, and the answer it must get: an error of the one shape. */
const cases: [title: string, bytes: string, status: number, code: string][] = [
  ['an unknown path', `GET /nothing HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  ['an unknown path under /v1', `GET /v1/pets HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  ['a trailing slash', `GET /v1/inventory/ HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  ['a doubled slash', `GET //v1/inventory HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  ['other letter case in the path', `GET /V1/inventory HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  [
    'an unknown path with an unreadable body',
    `POST /v1/pets HTTP/1.1\r\n${common}Content-Type: a/b\r\nContent-Length: 1\r\n\r\nx`,
    404,
    'not_found',
  ],
  ['the asterisk form', `OPTIONS * HTTP/1.1\r\n${common}\r\n`, 404, 'not_found'],
  ['a bad percent-escape', `GET /v1/inventory/%zz HTTP/1.1\r\n${common}\r\n`, 400, 'invalid_request'],
  ['a truncated percent-escape', `PATCH /v1/inventory/% HTTP/1.1\r\n${common}\r\n`, 400, 'invalid_request'],
  ['broken UTF-8 in a percent-escape', `GET /%ff HTTP/1.1\r\n${common}\r\n`, 400, 'invalid_request'],
  [
    'a parameter of 101 characters',
    `PATCH /v1/inventory/${'1'.repeat(101)} HTTP/1.1\r\n${common}\r\n`,
    414,
    'uri_too_long',
  ],
  [
    'a parameter of 8,000 characters',
    `PATCH /v1/inventory/${'1'.repeat(8000)} HTTP/1.1\r\n${common}\r\n`,
    414,
    'uri_too_long',
  ],
  ['no Host', `GET /v1/inventory HTTP/1.1\r\n${authorization}${close}\r\n`, 400, 'invalid_request'],
  ['two Hosts', `GET /v1/inventory HTTP/1.1\r\n${host}${common}\r\n`, 400, 'invalid_request'],
  [
    'an unknown transfer coding',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'a content coding',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n{"quantity":5}`,
    415,
    'unsupported_media_type',
  ],
  ['a request line of garbage', 'garbage\r\n\r\n', 400, 'invalid_request'],
  ['bytes of TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'invalid_request'],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid_request'],
  ['an unknown method', `FETCH /v1/inventory HTTP/1.1\r\n${common}\r\n`, 400, 'invalid_request'],
  ['an unknown version', `GET /v1/inventory HTTP/3.0\r\n${common}\r\n`, 400, 'invalid_request'],
  ['a header without a name', `GET /v1/inventory HTTP/1.1\r\n${common}: x\r\n\r\n`, 400, 'invalid_request'],
  [
    'a space before the colon',
    `GET /v1/inventory HTTP/1.1\r\n${common}X : y\r\n\r\n`,
    400,
    'invalid_request',
  ],
  ['a NUL in a header', `GET /v1/inventory HTTP/1.1\r\n${common}X: \0\r\n\r\n`, 400, 'invalid_request'],
  [
    'two lengths',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}`,
    400,
    'invalid_request',
  ],
  [
    'a length and chunks',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'a negative length',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Length: -1\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'a chunk size of garbage',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Transfer-Encoding: chunked\r\n\r\nzz\r\n`,
    400,
    'invalid_request',
  ],
  [
    'headers of 20 kB',
    `GET /v1/inventory HTTP/1.1\r\n${common}X: ${'x'.repeat(20_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
  ['257 headers', `GET /v1/inventory HTTP/1.1\r\n${manyHeaders(257)}\r\n`, 431, 'headers_too_large'],
  ['2500 headers', `GET /v1/inventory HTTP/1.1\r\n${manyHeaders(2500)}\r\n`, 431, 'headers_too_large'],
  ['a path of 20 kB', `GET /${'x'.repeat(20_000)} HTTP/1.1\r\n${common}\r\n`, 431, 'headers_too_large'],
  [
    'a body above the limit by its length',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Length: 4097\r\n\r\n${' '.repeat(4097)}`,
    413,
    'payload_too_large',
  ],
  [
    'a body above the limit in chunks',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Transfer-Encoding: chunked\r\n\r\n1001\r\n${' '.repeat(4097)}\r\n0\r\n\r\n`,
    413,
    'payload_too_large',
  ],
  [
    'chunk extensions of 20 kB',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Transfer-Encoding: chunked\r\n\r\n2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'text/plain',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}Content-Type: text/plain\r\nContent-Length: 14\r\n\r\n{"quantity":5}`,
    415,
    'unsupported_media_type',
  ],
  [
    'a body without a type',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}Content-Length: 14\r\n\r\n{"quantity":5}`,
    415,
    'unsupported_media_type',
  ],
  [
    'a body too large of an unknown type',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}Content-Type: text/plain\r\nContent-Length: 5000\r\n\r\n${' '.repeat(5000)}`,
    415,
    'unsupported_media_type',
  ],
  [
    'an empty body',
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}Content-Length: 0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  ['CONNECT', `CONNECT inventory.test:443 HTTP/1.1\r\n${common}\r\n`, 405, 'method_not_allowed'],
]

t.test('every error response has the standard body', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url)
  for (const [title, bytes, status, code] of cases) {
    await t.test(title, async (t) => {
      const { headers, ...answer } = parseResponse(await sendRaw(port, bytes))
      isError(t, { ...answer, contentType: headers.get('content-type') }, status, code)
      t.equal(headers.get('content-length'), String(Buffer.byteLength(answer.body)), 'the length')
      t.match(headers.get('x-request-id'), /^[0-9a-f-]{36}$/, 'the request id')
      t.equal(headers.get('cache-control'), 'no-store', 'no cache keeps it')
    })
  }
  t.strictSame(
    await database.query('SELECT quantity FROM inventory'),
    [{ quantity: '9' }],
    'nothing was written',
  )
})

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
  const list = `GET /v1/inventory HTTP/1.1\r\n${common}`
  const update = `PATCH /v1/inventory/1 HTTP/1.1\r\n${common}${json}`
  const chunked = 'Transfer-Encoding: chunked\r\n'
  const check = /check that its path is percent-encoded, and its headers and the length of its body/
  for (const [title, bytes] of [
    ['an é in the path', `GET /v1/é HTTP/1.1\r\n${common}\r\n`],
    ['a space in the path', `GET /v1/pet shop HTTP/1.1\r\n${common}\r\n`],
    ['a path without a slash', `GET v1/inventory HTTP/1.1\r\n${common}\r\n`],
    ['a folded header', `${list}X: a\r\n b\r\n\r\n`],
    ['a control character', `${list}X: \x01\r\n\r\n`],
    ['a Content-Length of text', `${update}Content-Length: many\r\n\r\n`],
    ['two lengths', `${update}${'Content-Length: 2\r\n'.repeat(2)}\r\n{}`],
    ['a length and chunks', `${update}Content-Length: 2\r\n${chunked}\r\n`],
    ['chunks and a length', `${update}${chunked}Content-Length: 2\r\n\r\n`],
    ['a chunk size of text', `${update}${chunked}\r\nmany\r\n`],
  ] as const) {
    const { status, body } = parseResponse(await sendRaw(port, bytes))
    t.equal(status, 400, title)
    t.match(JSON.parse(body).message, check, title)
  }
  const { socket, received } = await openRaw(port)
  socket.end(`${update}Content-Length: 14\r\n\r\n{"qua`)
  t.match(parseResponse(await received).body, check)
})

t.test('every message that RFC 9112 allows is accepted', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const statusOf = async (bytes: string): Promise<number> => parseResponse(await sendRaw(port, bytes)).status
  t.equal(await statusOf(`GET /v1/inventory HTTP/1.0\r\n${authorization}\r\n`), 200, 'HTTP/1.0 needs no Host')
  t.equal(
    await statusOf(`GET http://inventory.test/v1/inventory HTTP/1.1\r\n${common}\r\n`),
    200,
    'the absolute form',
  )
  t.equal(
    await statusOf(`\r\nGET /v1/inventory HTTP/1.1\r\n${common}\r\n`),
    200,
    'an empty line before the request',
  )
  t.equal(
    await statusOf(`GET /v1/inventory HTTP/1.0\r\n${authorization}Expect: x\r\n\r\n`),
    200,
    'Expect in HTTP/1.0',
  )
  t.equal(
    await statusOf(`GET /v1/inventory HTTP/1.1\r\n${manyHeaders(256)}\r\n`),
    200,
    'the maximum of headers',
  )
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

t.test('a complete request is answered before the garbage after it is refused', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url)
  const body = '{"quantity":5}'
  const text = await sendRaw(
    port,
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}Content-Length: ${body.length}\r\n\r\n${body}garbage\r\n\r\n`,
  )
  t.match(text, /^HTTP\/1\.1 200 OK/)
  t.match(text, '{"petId":1,"quantity":5,"status":"available"}HTTP/1.1 400 Bad Request')
})

t.test('100 Continue is sent only after the key was checked', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url)
  const expecting = async (key: string): Promise<{ continued: boolean; status: number | undefined }> => {
    let continued = false
    const outgoing = request({
      host: '127.0.0.1',
      port,
      method: 'PATCH',
      path: '/v1/inventory/1',
      agent: false,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'content-length': 14,
        expect: '100-continue',
      },
    })
    outgoing.on('continue', () => {
      continued = true
      outgoing.end('{"quantity":5}')
    })
    outgoing.flushHeaders()
    const [incoming] = await once(outgoing, 'response')
    incoming.resume()
    outgoing.destroy()
    return { continued, status: incoming.statusCode }
  }
  t.strictSame(await expecting(apiKey), { continued: true, status: 200 })
  t.strictSame(await expecting('wrong'), { continued: false, status: 401 })
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

t.test('a connection is served after an error of its client', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const { socket, received } = await openRaw(port)
  const bad = `PATCH /v1/inventory/x HTTP/1.1\r\n${host}${authorization}${json}Content-Length: 2\r\n\r\n{}`
  socket.write(`${bad}${bad}GET /v1/inventory HTTP/1.1\r\n${common}\r\n`)
  const statuses = Array.from((await received).matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => status)
  t.strictSame(statuses, ['400', '400', '200'])
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
