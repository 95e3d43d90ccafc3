import t from 'tap'
import { startService } from '../support/app.ts'
import { type Answer, isError, json } from '../support/http.ts'
import { trigger } from '../support/triggers.ts'

// Node 20.19 reads it, but has no name for it.
const query = process.version.startsWith('v20.19.') ? [] : ['QUERY']

const { send, update, log, database } = await startService(t, ['1,9,available'])

t.test('an unknown path is a 404, another method a 405, before anything is said of a body', async (t) => {
  const xml = { headers: { 'content-type': 'text/xml' }, body: '<a/>' }
  const nowhere = ['/inventory', '/v1', '/v1/', '/v1/inventory/', '/v2/inventory', '/docs/x', '/V1/inventory']
  for (const path of [...nowhere, '/v1/pets', '//v1/inventory']) {
    for (const answer of [await send('GET', path), await send('POST', path, xml)]) {
      isError(t, answer, 404, 'not_found', path)
      t.match(answer.text, /\/v1\/inventory\b.*\/docs\b/, 'it names the inventory and its documentation')
    }
  }
  isError(t, await send('PROPFIND', '/v1/pets'), 404, 'not_found')
  for (const [path, allow, ...others] of [
    ['/v1/inventory', 'GET, HEAD', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND'],
    ['/v1/inventory/1', 'PATCH', 'GET', 'DELETE', 'OPTIONS', 'TRACE', ...query, 'M-SEARCH'],
    ['/livez', 'GET, HEAD', 'POST', 'DELETE'],
    ['/openapi.json', 'GET, HEAD', 'POST'],
    ['/docs/', 'GET, HEAD', 'PATCH'],
  ] as const) {
    for (const method of others) {
      const answer = await send(method, path, method === 'TRACE' ? {} : xml)
      isError(t, answer, 405, 'method_not_allowed', `${method} ${path}`)
      t.equal(answer.headers.allow, allow, path)
    }
  }
})

const type = 'application/json'

t.test('a body must be JSON in UTF-8 without a coding; a 415 says what was sent and is right', async (t) => {
  const update = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
    send('PATCH', '/v1/inventory/1', { headers, body: '{"quantity":5}' })
  const isRefused = (answer: Answer, named: string, accepted: Record<string, string | undefined>): void => {
    isError(t, answer, 415, 'unsupported_media_type', named)
    t.match(JSON.parse(answer.text).message, named)
    t.match(answer.headers, { 'accept-patch': undefined, 'accept-encoding': undefined, ...accepted }, named)
  }
  const refused = ['text/plain', `${type}; charset=utf-16`, `${type}; x=";"; charset=utf-16`, `${type}x`, '/']
  for (const sent of refused)
    isRefused(await update({ 'content-type': sent }), `Content-Type is ${sent},`, { 'accept-patch': type })
  isRefused(await update({}), 'Content-Type is none,', { 'accept-patch': type })
  for (const coding of ['gzip', 'identity, br', 'x']) {
    const answer = await update({ 'content-type': type, 'content-encoding': coding })
    isRefused(answer, `Content-Encoding ${coding}.`, { 'accept-encoding': 'identity' })
  }
  const accepted = ['; charset=utf-8', ' ; Charset="UTF-8"', ';charset=UTF8', '; x="\\";charset=utf-16"', ';']
  for (const parameters of accepted)
    t.equal((await update({ 'content-type': `Application/JSON${parameters}` })).status, 200, parameters)
  t.equal((await update({ 'content-type': type, 'content-encoding': 'Identity' })).status, 200)
})

t.test('a body and a path must be small', async (t) => {
  const update = (length: number, headers = {}): Promise<Answer> =>
    send('PATCH', '/v1/inventory/1', json('{"quantity":5}'.padEnd(length), headers))
  t.equal((await update(4096)).status, 200)
  isError(t, await update(4097), 413, 'payload_too_large')
  isError(t, await update(4097, { 'transfer-encoding': 'chunked' }), 413, 'payload_too_large')
  for (const digits of [101, 8000])
    isError(t, await send('PATCH', `/v1/inventory/${'1'.repeat(digits)}`), 414, 'uri_too_long')
})

t.test('a well-formed X-Request-Id is used and returned, any other is replaced', async (t) => {
  const idFor = async (id: string): Promise<unknown> =>
    (await send('GET', '/v1/inventory', { headers: { 'x-request-id': id } })).headers['x-request-id']
  for (const id of ['A-Z.a_z-09', 'x'.repeat(128)]) t.equal(await idFor(id), id, id)
  for (const id of ['', 'x'.repeat(129), 'a b', 'a"b', 'ä', '../..'])
    t.match(await idFor(id), /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, id)
})

t.test('a 500 has no details, and the log has them under the same id', async (t) => {
  await database.query(trigger("PERFORM 'a secret of the table'::integer"))
  const failed = await update(1, 5, { 'x-request-id': 'the-failing-one' })
  isError(t, failed, 500, 'internal_error')
  t.match(failed.text, /Internal error. The log of the service has the details/)
  t.notMatch(failed.text, /secret|table|22P02/)
  t.equal(failed.headers['x-request-id'], 'the-failing-one')
  const line = log.find(({ msg }) => msg === 'request failed')
  t.equal(line?.['requestId'], 'the-failing-one')
  t.match(JSON.stringify(line?.['err']), /a secret of the table/)
})
