import t from 'tap'
import { apiKey, startApp, startService } from '../support/app.ts'
import { addKey, readStock } from '../support/database.ts'
import { type Answer, createSender, isError, json } from '../support/http.ts'

const API_KEYS = 'billing:key-of-billing,shop:key-of-shop'
const { port, database, log } = await startService(t, ['1,9,available'], { env: { API_KEYS } })

t.test('every path and method under /v1 requires a valid key, before the body is read', async (t) => {
  const send = createSender(port)
  const operations = [
    ['GET', '/v1/inventory'],
    ['HEAD', '/v1/inventory'],
    ['PATCH', '/v1/inventory/1', json({ quantity: 1 })],
    ['PATCH', '/v1/inventory/1', json('x'.repeat(100_000))],
    ['PATCH', '/v1/inventory/x', { headers: { 'content-type': 'text/xml' }, body: '<a/>' }],
    ['PATCH', `/v1/inventory/${'1'.repeat(500)}`],
    ['DELETE', '/v1/inventory/1'],
    ['OPTIONS', '/v1/inventory'],
    ['TRACE', '/v1/inventory'],
    ['GET', '/v1/'],
    ['GET', '/v1/nothing'],
    ['GET', '/%76%31/inventory'],
  ] as const
  const wrong = ['wrong', `${apiKey}x`, apiKey.toUpperCase(), `${apiKey},${apiKey}`]
  const credentials = [undefined, '', 'Bearer', `Basic ${apiKey}`, apiKey, `Bearer${apiKey}`]
    .concat(wrong.map((key) => `Bearer ${key}`))
    .concat('bEARER  wrong')
  // A token came; other schemes and empty credentials are no error of a token (RFC 6750, section 3).
  const hasToken = (authorization = ''): boolean => /^bearer +\S/i.test(authorization)
  const bodies = new Set<string>()
  for (const authorization of credentials) {
    for (const [method, path, message] of operations) {
      const headers = { ...message?.headers, ...(authorization === undefined ? {} : { authorization }) }
      const answer = await send(method, path, { ...message, headers })
      const title = `${method} ${path} with Authorization: ${authorization}`
      const error = hasToken(authorization) ? ', error="invalid_token"' : ''
      t.equal(answer.headers['www-authenticate'], `Bearer realm="inventory"${error}`, title)
      if (method === 'HEAD') t.equal(answer.status, 401, title)
      else {
        isError(t, answer, 401, 'unauthorized', title)
        bodies.add(answer.text)
      }
    }
  }
  t.equal(bodies.size, 1, 'a malformed key and an unknown one get the same response')
  t.equal(await readStock(database), '1,9,available')
})

t.test('each of several keys is accepted, whatever the case of the scheme, or none is', async (t) => {
  const without = await startApp(t, database.url, { env: { API_KEYS: '' } })
  for (const authorization of ['Bearer key-of-billing', 'bearer key-of-shop', 'BEARER key-of-shop']) {
    const list = (of: number): Promise<Answer> => createSender(of, { authorization })('GET', '/v1/inventory')
    t.equal((await list(port)).status, 200, authorization)
    t.equal((await list(without.port)).status, 401, authorization)
  }
  t.notMatch(JSON.stringify([...log, ...without.log]), /key-of/)
})

t.test('a read-only key lists, and changes nothing', async (t) => {
  const key = await addKey(database, 'reader')
  await database.query('UPDATE api_keys SET is_read_only = true')
  const send = createSender(port, { authorization: `Bearer ${key}` })
  for (const method of ['GET', 'HEAD']) t.equal((await send(method, '/v1/inventory')).status, 200, method)
  for (const [path, message] of [
    ['/v1/inventory/1', json({ quantity: 1 })],
    ['/v1/inventory/1', { body: 'x', headers: { 'content-type': 'text/plain' } }],
    ['/v1/inventory/1', json({ quantity: 1, padding: 'x'.repeat(100_000) })],
    ['/v1/inventory/x', json({ quantity: 1 })],
    ['/v1/inventory/7', json({ quantity: 1 })],
  ] as const) {
    const answer = await send('PATCH', path, message)
    isError(t, answer, 403, 'forbidden')
    t.equal(answer.headers['www-authenticate'], 'Bearer realm="inventory", error="insufficient_scope"', path)
  }
  for (const [method, path, status] of [
    ['DELETE', '/v1/inventory/1', 405],
    ['PATCH', '/v1/nothing', 404],
    ['PATCH', '/v1/inventory/', 404],
  ] as const)
    t.equal((await send(method, path)).status, status, 'what does not exist is no matter of the key')
  t.equal(await readStock(database), '1,9,available')
})
