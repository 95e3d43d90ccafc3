import t from 'tap'
import type { ApiKeyOwner, FindApiKey } from '../../src/api-keys/key.ts'
import { DatabaseUnavailableError } from '../../src/database/errors/errors.ts'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { type Answer, callerOf, json } from '../support/http.ts'
import { openRaw, parseResponse } from '../support/raw.ts'

const operations = [
  ['GET', '/v1/inventory'],
  ['HEAD', '/v1/inventory'],
  ['PATCH', '/v1/inventory/1'],
  ['PATCH', `/v1/inventory/${'1'.repeat(500)}`],
  ['DELETE', '/v1/inventory/1'],
  ['OPTIONS', '/v1/inventory'],
  ['TRACE', '/v1/inventory'],
  ['QUERY', '/v1/inventory'],
  ['GET', '/v1'],
  ['GET', '/v1/'],
  ['GET', '/v1/nothing'],
  ['POST', '/v1/nothing'],
  ['GET', '/%76%31/inventory'],
] as const

t.test('every path and method under /v1 requires a valid key', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url)
  const send = callerOf(port)
  const credentials = [
    undefined,
    '',
    'Bearer',
    'Bearer ',
    'Bearer wrong',
    `Bearer ${apiKey}x`,
    `Bearer ${apiKey.slice(1)}`,
    `Bearer ${apiKey.toUpperCase()}`,
    `Bearer Bearer ${apiKey}`,
    `Basic ${apiKey}`,
    apiKey,
    `Bearer${apiKey}`,
    `Bearer ${apiKey},${apiKey}`,
    'bEARER  wrong',
    'Bearer a b',
  ]
  // A token came; other schemes and empty credentials are no error of a token (RFC 6750, section 3).
  const hasToken = (authorization = ''): boolean => /^bearer +\S/i.test(authorization)
  for (const authorization of credentials) {
    for (const [method, path] of operations) {
      await t.test(`${method} ${path} with Authorization: ${authorization}`, async (t) => {
        const answer = await send(method, path, {
          ...(method === 'PATCH' ? json({ quantity: 1 }) : {}),
          headers: authorization === undefined ? {} : { authorization },
        })
        t.equal(
          answer.headers['www-authenticate'],
          hasToken(authorization)
            ? 'Bearer realm="inventory", error="invalid_token"'
            : 'Bearer realm="inventory"',
        )
        if (method === 'HEAD') t.equal(answer.status, 401)
        else
          isError(
            t,
            { ...answer, contentType: answer.headers['content-type'], body: answer.text },
            401,
            'unauthorized',
          )
      })
    }
  }
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '9' }])
})

t.test(
  'answers a CORS preflight under /v1, which never carries a key, with 403 and the reason',
  async (t) => {
    const database = await testDatabase(t)
    const { port } = await startApp(t, database.url)
    const send = callerOf(port)
    const origin = 'https://shop.example.com'
    for (const [path, method] of [
      ['/v1/inventory', 'GET'],
      ['/v1/inventory/1', 'PATCH'],
      ['/v1/nothing', 'POST'],
    ] as const) {
      const headers = { origin, 'access-control-request-method': method }
      const answer = await send('OPTIONS', path, { headers })
      isError(
        t,
        { ...answer, contentType: answer.headers['content-type'], body: answer.text },
        403,
        'forbidden',
      )
      t.match(answer.text, 'does not support CORS')
      t.equal((await send('OPTIONS', path, { headers: { origin } })).status, 401, 'no preflight')
      t.equal((await send('GET', path, { headers })).status, 401, 'no preflight')
    }
  },
)

t.test('a valid key is accepted, whatever the letter case of the scheme', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR']) {
    const answer = await callerOf(port)('GET', '/v1/inventory', {
      headers: { authorization: `${scheme} ${apiKey}` },
    })
    t.equal(answer.status, 200, scheme)
  }
})

t.test('a read-only key lists, and changes nothing', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url, {
    app: {
      findApiKey: (key) => (key === 'reader' ? { name: 'shop', isReadOnly: true } : undefined),
    },
  })
  const send = callerOf(port, { authorization: 'Bearer reader' })
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('HEAD', '/v1/inventory')).status, 200)
  for (const [path, options] of [
    ['/v1/inventory/1', json({ quantity: 1 })],
    ['/v1/inventory/1', json({ quantity: -1 })],
    ['/v1/inventory/1', { body: 'x', headers: { 'content-type': 'text/plain' } }],
    ['/v1/inventory/1', json({ quantity: 1, padding: 'x'.repeat(100_000) })],
    ['/v1/inventory/x', json({ quantity: 1 })],
    ['/v1/inventory/7', json({ quantity: 1 })],
  ] as const) {
    const answer = await send('PATCH', path, options)
    isError(
      t,
      { ...answer, contentType: answer.headers['content-type'], body: answer.text },
      403,
      'forbidden',
    )
    t.equal(answer.headers['www-authenticate'], 'Bearer realm="inventory", error="insufficient_scope"')
  }
  t.equal(
    (await send('DELETE', '/v1/inventory/1')).status,
    405,
    'what does not exist is no matter of the key',
  )
  t.equal((await send('PATCH', '/v1/nothing', json({ quantity: 1 }))).status, 404)
  t.equal((await send('PATCH', '/v1/inventory/', json({ quantity: 1 }))).status, 404, 'without an id, too')
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '9' }])
})

t.test('no request is accepted if no key is configured', async (t) => {
  const database = await testDatabase(t)
  const { send, port } = await startApp(t, database.url, { env: { API_KEYS: '' } })
  t.equal((await send('GET', '/v1/inventory')).status, 401)
  for (const authorization of ['Bearer ', 'Bearer undefined', 'Bearer null']) {
    t.equal((await callerOf(port)('GET', '/v1/inventory', { headers: { authorization } })).status, 401)
  }
})

t.test('each of several keys is accepted, and the log names it', async (t) => {
  const database = await testDatabase(t)
  const keys = [
    { name: 'billing', key: 'the-key-of-billing-0123456789abcdef' },
    { name: 'shop', key: 'the-key-of-shop' },
  ]
  const { port, log, close } = await startApp(t, database.url, {
    env: { API_KEYS: keys.map(({ name, key }) => `${name}:${key}`).join() },
  })
  for (const { key } of keys) {
    const answer = await callerOf(port)('GET', '/v1/inventory', {
      headers: { authorization: `Bearer ${key}` },
    })
    t.equal(answer.status, 200)
  }
  await callerOf(port)('GET', '/v1/inventory', { headers: { authorization: 'Bearer a-wrong-key' } })
  await close()
  const requests = log.filter((line) => line['msg'] === 'request')
  t.strictSame(
    requests.map((line) => line['key']),
    ['billing', 'shop', null],
  )
  const text = JSON.stringify(log)
  for (const secret of ['the-key-of-billing', 'the-key-of-shop', 'a-wrong-key']) t.notMatch(text, secret)
})

t.test('a request waits for the look-up of its key, and gets a 503 if the look-up fails', async (t) => {
  const database = await testDatabase(t)
  const answers = new Map<string, () => ReturnType<FindApiKey>>([
    ['good', () => Promise.resolve({ name: 'billing' })],
    ['bad', () => Promise.resolve(undefined)],
    ['untold', () => Promise.reject(new DatabaseUnavailableError('away'))],
  ])
  const { port, log, close } = await startApp(t, database.url, {
    app: {
      findApiKey: (key) => answers.get(key)?.(),
    },
  })
  const send = callerOf(port)
  const answerTo = (key: string): Promise<Answer> =>
    send('GET', '/v1/inventory', { headers: { authorization: `Bearer ${key}` } })
  t.equal((await answerTo('good')).status, 200)
  for (const [key, status, code] of [
    ['bad', 401, 'unauthorized'],
    ['untold', 503, 'service_unavailable'],
  ] as const) {
    const answer = await answerTo(key)
    isError(t, { ...answer, contentType: answer.headers['content-type'], body: answer.text }, status, code)
  }
  await close()
  t.strictSame(
    log.filter((line) => line['msg'] === 'request').map((line) => line['key']),
    ['billing', null, null],
  )
})

t.test('a key that has expired or was revoked is refused, and the log names it', async (t) => {
  const database = await testDatabase(t)
  const owners = new Map<string, ApiKeyOwner>([
    ['old', { name: 'billing', id: '0123456789ab', invalidReason: 'revoked' }],
    ['older', { name: 'billing', id: 'ba9876543210', invalidReason: 'expired' }],
    ['new', { name: 'billing', id: '00112233aabb' }],
  ])
  const { port, log, close } = await startApp(t, database.url, {
    app: { findApiKey: (key) => owners.get(key) },
  })
  for (const [key, status] of [
    ['old', 401],
    ['older', 401],
    ['new', 200],
    ['unknown', 401],
  ] as const) {
    const answer = await callerOf(port)('GET', '/v1/inventory', {
      headers: { authorization: `Bearer ${key}` },
    })
    t.equal(answer.status, status)
    t.notMatch(
      answer.text + JSON.stringify(answer.headers),
      /billing|revoked|expired/,
      'the answer does not say so',
    )
  }
  await close()
  t.strictSame(
    log
      .filter((line) => line['msg'] === 'request')
      .map(({ key, keyId, keyState }) => ({ key, keyId, keyState })),
    [
      { key: 'billing', keyId: '0123456789ab', keyState: 'revoked' },
      { key: 'billing', keyId: 'ba9876543210', keyState: 'expired' },
      { key: 'billing', keyId: '00112233aabb', keyState: undefined },
      { key: null, keyId: null, keyState: undefined },
    ],
  )
})

t.test('a pipelined update does not overtake one whose key is still looked up', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  for (const [outcome, first] of [
    ['found', 200],
    ['unknown', 503],
  ] as const) {
    let finishLookup = (): void => {}
    const { port, send } = await startApp(t, database.url, {
      app: {
        findApiKey: (key) => {
          if (key === apiKey) return { name: 'known' }
          return new Promise((resolve, reject) => {
            finishLookup = () =>
              outcome === 'found' ? resolve({ name: 'new' }) : reject(new DatabaseUnavailableError('away'))
          })
        },
      },
    })
    const update = (key: string, quantity: number, ...more: string[]): string =>
      [
        'PATCH /v1/inventory/1 HTTP/1.1',
        'Host: x',
        `Authorization: Bearer ${key}`,
        'Content-Type: application/json',
        'Content-Length: 14',
        ...more,
        '',
        `{"quantity":${quantity}}`,
      ].join('\r\n')
    const { socket, received } = await openRaw(port)
    socket.write(update('new', 1) + update(apiKey, 2) + update(apiKey, 3, 'Connection: close'))
    // Both have been read when a later request is answered.
    t.equal((await send('GET', '/livez')).status, 200)
    finishLookup()
    const answers = (await received).split(/(?=HTTP\/1\.1 )/).map(parseResponse)
    t.strictSame(
      answers.map(({ status }) => status),
      [first, 200, 200],
    )
    const [row] = await database.query('SELECT quantity FROM inventory')
    t.equal(row?.['quantity'], '3', `after a key that was ${outcome}`)
  }
})

t.test('the body of a request without a key is not read', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const send = callerOf(port)
  t.equal((await send('PATCH', '/v1/inventory/1', json('{'))).status, 401)
  t.equal(
    (await send('PATCH', '/v1/inventory/x', { headers: { 'content-type': 'text/xml' }, body: '<a/>' }))
      .status,
    401,
  )
  t.equal((await send('PATCH', '/v1/inventory/1', json('x'.repeat(100_000)))).status, 401)
})
