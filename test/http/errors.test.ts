import t from 'tap'
import { hasContentCoding } from '../../src/http/json-body.ts'
import { startService } from '../support/app.ts'
import { isError } from '../support/error-shape.ts'
import { type Answer, json } from '../support/http.ts'
import { authorization, host, json as jsonType } from '../support/messages.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

const { port, send, log, database } = await startService(t, [['1', 9, 'available']])

/** Paths with the methods that they allow, and others. */
const methods: [path: string, allow: string, others: string[]][] = [
  ['/v1/inventory', 'GET, HEAD', ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']],
  ['/v1/inventory/1', 'PATCH', ['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']],
  ...['/livez', '/readyz', '/openapi.json', '/docs', '/docs/', '/docs/reference.js'].map(
    (path): (typeof methods)[number] => [path, 'GET, HEAD', ['POST', 'PATCH', 'DELETE']],
  ),
]

t.test(
  'a path that does not exist is a 404, another method a 405, before anything is said of a body',
  async (t) => {
    const xml = { headers: { 'content-type': 'text/xml' }, body: '<a/>' }
    const nowhere = [
      '/',
      '/inventory',
      '/v1',
      '/v1/',
      '/v1/inventory/',
      '/v2/inventory',
      '/docs/x',
      '/nothing',
    ]
    for (const path of [...nowhere, '/v1/pets', '//v1/inventory', '/V1/inventory']) {
      for (const answer of [await send('GET', path), await send('POST', path, xml)]) {
        isError(t, answer, 404, 'not_found', path)
        t.match(
          answer.text,
          /\/v1\/inventory\b.*\/docs\b/,
          'it says where the inventory and its documentation are',
        )
      }
    }
    isError(t, await send('PROPFIND', '/v1/inventory'), 404, 'not_found')
    for (const [path, allow, others] of methods) {
      for (const method of others) {
        const answer = await send(method, path, method === 'TRACE' ? {} : xml)
        isError(t, answer, 405, 'method_not_allowed', `${method} ${path}`)
        t.equal(answer.headers.allow, allow, path)
      }
    }
  },
)

const type = 'application/json'
const refusedTypes = [
  'text/plain',
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/json; charset=utf-16',
  'application/json; charset="utf-16"',
  'application/json; x=";"; charset=utf-16',
  'application/json;charset=iso-8859-1;x=y',
  'json',
  'application/jsonx',
  '/',
  ';charset=utf-8',
  undefined,
]
const acceptedTypes = [
  'application/json; charset=utf-8',
  'Application/JSON;charset=UTF8',
  'application/json ; Charset="UTF-8"',
  'application/json; x=";charset=utf-16"',
  'application/json; x="\\";charset=utf-16"',
  'application/json; xcharset=utf-16',
  'application/json;',
]

t.test(
  'a body must be JSON in UTF-8 without a coding, and small; the 415 names what was sent and what is right',
  async (t) => {
    const update = (headers: Readonly<Record<string, string>>, body = '{"quantity":5}'): Promise<Answer> =>
      send('PATCH', '/v1/inventory/1', { headers, body })
    const isRefused = (answer: Answer, named: string, accepted: Record<string, string>): void => {
      isError(t, answer, 415, 'unsupported_media_type', named)
      t.match(JSON.parse(answer.text).message, named)
      const { 'accept-patch': patch, 'accept-encoding': encoding } = answer.headers
      t.strictSame({ ...(patch && { patch }), ...(encoding && { encoding }) }, accepted, named)
    }
    for (const sent of refusedTypes) {
      const answer = await update(sent === undefined ? {} : { 'content-type': sent })
      isRefused(answer, sent === undefined ? 'no Content-Type.' : `Content-Type: ${sent}.`, { patch: type })
    }
    for (const coding of ['gzip', 'identity, br', 'x']) {
      const answer = await update({ 'content-type': type, 'content-encoding': coding })
      isRefused(answer, `Content-Encoding: ${coding}.`, { encoding: 'identity' })
    }
    for (const sent of acceptedTypes) t.equal((await update({ 'content-type': sent })).status, 200, sent)
    t.equal((await update({ 'content-type': type, 'content-encoding': 'Identity' })).status, 200)
    const padded = (length: number): Promise<Answer> =>
      update({ 'content-type': type }, '{"quantity":5}'.padEnd(length))
    t.equal((await padded(4096)).status, 200)
    isError(t, await padded(4097), 413, 'payload_too_large')
    isError(
      t,
      await update({ 'content-type': type, 'transfer-encoding': 'chunked' }, ' '.repeat(4097)),
      413,
      'payload_too_large',
    )
    for (const digits of [101, 8000])
      isError(t, await send('PATCH', `/v1/inventory/${'1'.repeat(digits)}`), 414, 'uri_too_long')
  },
)

t.test('a 400 for malformed HTTP says what to check', async (t) => {
  const { socket, received } = await openRaw(port)
  socket.end(
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${jsonType}Content-Length: 14\r\n\r\n{"qua`,
  )
  const check = /check that its path is percent-encoded, and its headers and the length of its body/
  for (const text of [await received, await sendRaw(port, `GET /v1/é HTTP/1.1\r\n${host}\r\n`)])
    t.match(parseResponse(text), { status: 400, body: check })
})

t.test('a 500 has no details, and the log has them under the same id', async (t) => {
  await database.query(
    `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 'a secret of the table'::integer; END $$`,
  )
  await database.query('CREATE TRIGGER fail BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION fail()')
  const { headers, ...update } = json({ quantity: 5 })
  const failed = await send('PATCH', '/v1/inventory/1', {
    ...update,
    headers: { ...headers, 'x-request-id': 'the-failing-one' },
  })
  isError(t, failed, 500, 'internal_error')
  t.match(failed.text, /Internal error. The log of the service has the details/)
  t.notMatch(failed.text, /secret|table|22P02/)
  t.equal(failed.headers['x-request-id'], 'the-failing-one')
  const line = log.find(({ msg }) => msg === 'request failed')
  t.equal(line?.['requestId'], 'the-failing-one')
  t.match(JSON.stringify(line?.['err']), /a secret of the table/)
})

t.test('a Content-Encoding full of spaces takes linear time', async (t) => {
  // With quadratic time, this would take hours.
  const spaces = ' '.repeat(1_000_000)
  t.equal(hasContentCoding({ 'content-encoding': `identity,${spaces}x` }), true)
  t.equal(hasContentCoding({ 'content-encoding': `${spaces}Identity${spaces},${spaces}` }), false)
})
