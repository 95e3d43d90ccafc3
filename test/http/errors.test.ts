import t from 'tap'
import { hasContentCoding } from '../../src/http/json-body.ts'
import { startService } from '../support/app.ts'
import { isError } from '../support/error-shape.ts'
import { json } from '../support/http.ts'
import { authorization, host, json as jsonType } from '../support/messages.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

const { port, send, log, database } = await startService(t, [['1', 9, 'available']])

t.test('a 404 for a path says where the inventory and its documentation are', async (t) => {
  for (const path of ['/', '/inventory', '/v1', '/v1/', '/v1/inventory/', '/v2/inventory', '/docs/x']) {
    const { status, text } = await send('GET', path)
    t.equal(status, 404, path)
    t.match(text, /\/v1\/inventory\b.*\/docs\b/, path)
  }
})

t.test('a 415 names what was sent', async (t) => {
  const type = 'application/json'
  for (const [headers, named] of [
    [{ 'content-type': 'text/plain' }, /Content-Type: text\/plain\./],
    [{}, /no Content-Type\./],
    [{ 'content-type': `${type}; charset=latin1` }, /Content-Type: application\/json; charset=latin1\./],
    [{ 'content-type': type, 'content-encoding': 'gzip' }, /Content-Encoding: gzip\./],
    [{ 'content-type': `text/${'"\\<x>'.repeat(1000)}` }, /^.{0,300}$/],
  ] as const) {
    const { status, text } = await send('PATCH', '/v1/inventory/1', { headers, body: '{"quantity":5}' })
    t.equal(status, 415)
    t.match(JSON.parse(text).message, named)
  }
})

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
