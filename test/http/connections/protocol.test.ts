import { once } from 'node:events'
import t, { type Test } from 'tap'
import { apiKey, startApp, type TestApp } from '../../support/app.ts'
import { addEntries, type TestDatabase, testDatabase } from '../../support/database.ts'
import { isError } from '../../support/error-shape.ts'
import { openRaw, parseResponse, sendRaw } from '../../support/raw.ts'

const host = 'Host: inventory.test\r\n'
const authorization = `Authorization: Bearer ${apiKey}\r\n`
const close = 'Connection: close\r\n'
const json = 'Content-Type: application/json\r\n'
const body = '{"quantity":5}'
const length = `Content-Length: ${body.length}\r\n`

async function setUp(t: Test): Promise<TestApp & { database: TestDatabase }> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  return { ...(await startApp(t, database.url)), database }
}

function quantities(database: TestDatabase): Promise<unknown> {
  return database.query('SELECT quantity FROM inventory')
}

/** The statuses of all responses in what came back. */
function statusesOf(text: string): number[] {
  return Array.from(text.matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => Number(status))
}

t.test('a message of another protocol is refused as garbage is', async (t) => {
  const { port, log, database } = await setUp(t)
  const update = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}${length}\r\n${body}`
  for (const line of [
    'DESCRIBE /x RTSP/1.0',
    'SETUP /v1/inventory RTSP/1.0',
    'GET_PARAMETER /livez RTSP/2.0',
    'FLUSH * RTSP/1.0',
    'OPTIONS * RTSP/2.0',
    'GET /v1/inventory HTTP/2.0',
    'GET /v1/inventory HTTP/0.9',
  ]) {
    const text = await sendRaw(port, `${line}\r\n${host}${authorization}\r\n${update}`)
    const { headers, ...answer } = parseResponse(text)
    isError(t, { ...answer, contentType: headers.get('content-type') }, 400, 'invalid_request')
    t.match(answer.body, 'not valid HTTP')
    t.equal(headers.get('connection'), 'close')
    t.strictSame(statusesOf(text), [400], 'nothing behind it is answered')
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }], 'or done')
  const text = await sendRaw(port, `${update}DESCRIBE /x RTSP/1.0\r\n${host}\r\n${update}`)
  t.strictSame(statusesOf(text), [200, 400], 'what came before it is answered first')
  t.strictSame(
    log.filter(({ level }) => Number(level) >= 40),
    [],
    'nothing of it is worth a warning',
  )
  t.equal(log.filter(({ msg }) => msg === 'malformed request refused').length, 8)
})

t.test('Host must be a host name or an address, with or without a port', async (t) => {
  const { port } = await setUp(t)
  const statusOf = async (bytes: string): Promise<number> => parseResponse(await sendRaw(port, bytes)).status
  for (const value of [
    'a b',
    'a/b',
    'a@b',
    'a,b',
    'a:x',
    'a:80:80',
    'a:-1',
    '[::1',
    '::1',
    '[::1]x',
    '[:::1]',
    '[1.2.3.4]',
    '[fe80::1%25eth0]',
    '[]',
    'a?b',
    'a#b',
    'a\\b',
    'a"b',
    '<a>',
    'a%zz',
    'a%2',
    'http://a',
    'ä',
    'a{b}',
  ]) {
    t.equal(
      await statusOf(`GET /v1/inventory HTTP/1.1\r\nHost: ${value}\r\n${authorization}${close}\r\n`),
      400,
      value,
    )
    t.equal(
      await statusOf(`GET /v1/inventory HTTP/1.0\r\nHost: ${value}\r\n${authorization}\r\n`),
      400,
      `${value} in HTTP/1.0`,
    )
    t.equal(
      await statusOf(`GET /livez HTTP/1.1\r\nHost: ${value}\r\n${close}\r\n`),
      400,
      'without a key, too',
    )
  }
  for (const value of [
    '',
    'a',
    'A.example',
    'inventory.test:3000',
    'a:',
    'a_b-c.d~e',
    "a!$&'()*+;=b",
    'a%41',
    'xn--fsq.example',
    '127.0.0.1:80',
    '[::1]',
    '[::1]:3000',
    '[::ffff:127.0.0.1]',
    '[v1.a:b]',
    ' a ',
  ]) {
    t.equal(
      await statusOf(`GET /v1/inventory HTTP/1.1\r\nHost: ${value}\r\n${authorization}${close}\r\n`),
      200,
      value,
    )
  }
})

t.test('the authority of an absolute request target must be a host name or an address', async (t) => {
  const { port } = await setUp(t)
  const request = async (target: string): Promise<ReturnType<typeof parseResponse>> =>
    parseResponse(await sendRaw(port, `GET ${target} HTTP/1.1\r\n${host}${authorization}${close}\r\n`))
  const statusOf = async (target: string): Promise<number> => (await request(target)).status
  for (const authority of ['a,b', 'user@a', 'user:password@a', 'a:x', '[::1', '', ':80', 'a%zz']) {
    const { status, body } = await request(`http://${authority}/v1/inventory`)
    t.equal(status, 400, authority)
    t.match(body, 'The URL in the request line must have a host name', authority)
  }
  for (const authority of ['a', 'a:80', '[::1]:80', '127.0.0.1']) {
    t.equal(await statusOf(`http://${authority}/v1/inventory`), 200, authority)
    t.equal(await statusOf(`https://${authority}/v1/inventory`), 200, authority)
  }
})

t.test('a request target has no fragment', async (t) => {
  const { port, database } = await setUp(t)
  for (const target of [
    '/v1/inventory/1#',
    '/v1/inventory/1#x',
    '/v1/inventory/1?x#y',
    '/v1/inventory/1#/../2',
    'http://a/v1/inventory/1#x',
    '/#',
    '/livez#',
  ]) {
    for (const method of ['PATCH', 'GET']) {
      const { status } = parseResponse(
        await sendRaw(
          port,
          `${method} ${target} HTTP/1.1\r\n${host}${authorization}${close}${json}${length}\r\n${body}`,
        ),
      )
      t.equal(status, 400, `${method} ${target}`)
    }
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }])
})

t.test('a header field that decides who asks, or what, comes once', async (t) => {
  const { port, database } = await setUp(t)
  const answerTo = async (lines: string): Promise<ReturnType<typeof parseResponse>> =>
    parseResponse(
      await sendRaw(port, `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${close}${lines}${length}\r\n${body}`),
    )
  const wrong = 'Authorization: Bearer wrong\r\n'
  for (const lines of [
    `${authorization}${wrong}${json}`,
    `${wrong}${authorization}${json}`,
    `${authorization}${authorization}${json}`,
    `${authorization}${json}authorization: x\r\n`,
    `${authorization}AUTHORIZATION:\r\n${json}`,
  ]) {
    const { headers, ...answer } = await answerTo(lines)
    isError(t, { ...answer, contentType: headers.get('content-type') }, 400, 'invalid_request')
    t.equal(headers.get('www-authenticate'), 'Bearer realm="inventory", error="invalid_request"')
  }
  for (const lines of [
    `${authorization}${json}${json}`,
    `${authorization}${json}content-type: text/plain\r\n`,
    `${authorization}Content-Type: text/plain\r\n${json}`,
    `${authorization}${json}Content-Type:\r\n`,
  ]) {
    const { headers, ...answer } = await answerTo(lines)
    isError(t, { ...answer, contentType: headers.get('content-type') }, 400, 'invalid_request')
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }])
})

t.test('a transfer coding that cannot be read ends the connection', async (t) => {
  const { port, database } = await setUp(t)
  const chunks = `e\r\n${body}\r\n0\r\n\r\n`
  const head = `PATCH /v1/inventory/x HTTP/1.1\r\n${host}${authorization}${json}`
  const next = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}${length}\r\n${body}`
  for (const [title, bytes, status] of [
    ['empty, beside a length', `${head}Transfer-Encoding:\r\n${length}\r\n${body}`, 400],
    ['empty, in other letters', `${head}TRANSFER-ENCODING: \t\r\n${length}\r\n${body}`, 400],
    ['empty, alone', `${head}Transfer-Encoding:\r\n\r\n`, 400],
    ['unknown', `${head}Transfer-Encoding: gzip, chunked\r\n\r\n${chunks}`, 400],
    ['unknown, with a parameter', `${head}Transfer-Encoding: x;y="z", chunked\r\n\r\n${chunks}`, 400],
    ['identity', `${head}Transfer-Encoding: identity, chunked\r\n\r\n${chunks}`, 400],
    ['unknown and last', `${head}Transfer-Encoding: gzip\r\n\r\n${chunks}`, 400],
    ['twice', `${head}Transfer-Encoding: chunked, chunked\r\n\r\n${chunks}`, 400],
    ['no name of a coding', `${head}Transfer-Encoding: a b, chunked\r\n\r\n${chunks}`, 400],
    [
      'in HTTP/1.0',
      `${head.replace('1.1', '1.0')}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
      400,
    ],
  ] as const) {
    const text = await sendRaw(port, bytes + next)
    const { headers, ...answer } = parseResponse(text)
    isError(t, { ...answer, contentType: headers.get('content-type') }, status, 'invalid_request')
    t.equal(headers.get('connection'), 'close', title)
    t.strictSame(statusesOf(text), [status], title)
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }], 'nothing behind them was done')
})

t.test('no response follows the one that ends its connection', async (t) => {
  const { port, database } = await setUp(t)
  const get = `GET /v1/inventory HTTP/1.1\r\n${host}`
  const update = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}${length}\r\n${body}`
  const cases: [title: string, last: string, behind: string, statuses: number[]][] = [
    ['no key', `${get}\r\n${get}${close}\r\n`, update, [401, 401]],
    ['two Hosts', `${get}\r\n${get}${host}${close}\r\n`, update, [401, 400]],
    ['no such path', `GET /x HTTP/1.1\r\n${host}${close}\r\n`, `${update}${update}`, [404]],
    ['an HTTP/1.0 request', 'GET /v1/inventory HTTP/1.0\r\n\r\n', update, [401]],
    ['served', `${get}${authorization}${close}\r\n`, update, [200]],
    ['garbage', `${get}${authorization}${close}\r\n`, 'garbage\r\n\r\n', [200]],
    [
      'a refused body',
      `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${close}${json}Content-Length: 2\r\n\r\n{}`,
      update,
      [400],
    ],
  ]
  for (const [title, last, behind, statuses] of cases) {
    t.strictSame(statusesOf(await sendRaw(port, last + behind)), statuses, title)
    const { socket, received } = await openRaw(port)
    socket.write(last)
    await once(socket, 'data')
    socket.write(behind)
    t.strictSame(statusesOf(await received), statuses, `${title}, in two pieces`)
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }])
})

t.test('an error in a body does not replace the responses to the requests before it', async (t) => {
  const { port, database } = await setUp(t)
  const patch = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${json}`
  const update = `${patch}${authorization}${length}\r\n${body}`
  const chunked = 'Transfer-Encoding: chunked\r\n\r\n'
  const cases: [title: string, last: string, statuses: number[]][] = [
    ['an invalid chunk', `${patch}${authorization}${chunked}invalid\r\n`, [200, 200, 400]],
    ['an incomplete body', `${patch}${authorization}${length}\r\n{`, [200, 200, 400]],
    ['an invalid chunk of a request without a key', `${patch}${chunked}invalid\r\n`, [200, 200, 400]],
  ]
  for (const [title, last, statuses] of cases) {
    const { socket, received } = await openRaw(port)
    socket.end(`${update}${update}${last}`)
    t.strictSame(statusesOf(await received), statuses, title)
  }
  t.strictSame(await quantities(database), [{ quantity: '5' }])
})

t.test('a client that waits for 100 Continue gets what its head decides at once', async (t) => {
  const { port } = await setUp(t)
  const expect = 'Expect: 100-continue\r\n'
  const statusesTo = async (head: string): Promise<{ statuses: number[]; headers: Map<string, string> }> => {
    const { socket, received } = await openRaw(port)
    socket.write(`${head}\r\n`)
    await once(socket, 'data')
    // What else would come, a final status behind `100 Continue`, comes when the body does.
    socket.end()
    const text = await received
    return { statuses: statusesOf(text), headers: parseResponse(text).headers }
  }
  const patch = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${expect}`
  for (const [title, head, status] of [
    ['too long', `${patch}${json}Content-Length: 4097\r\n`, 413],
    ['of another type', `${patch}Content-Type: text/plain\r\n${length}`, 415],
    ['without a type', `${patch}${length}`, 415],
    ['in another charset', `${patch}Content-Type: application/json; charset=latin1\r\n${length}`, 415],
    ['coded', `${patch}${json}Content-Encoding: gzip\r\n${length}`, 415],
    ['for another method', `${patch.replace('PATCH', 'POST')}${json}${length}`, 405],
    ['for a GET', `${patch.replace('PATCH', 'GET')}${json}${length}`, 405],
    ['for an unknown path', `${patch.replace('/1', '/1/x')}${json}${length}`, 404],
    ['for no path of the interface', `${patch.replace('/v1/inventory/1', '/x')}${json}${length}`, 404],
    ['without a key', `${patch.replace(authorization, '')}${json}${length}`, 401],
    ['with two keys', `${patch}${authorization}${json}${length}`, 400],
    ['with a bad Host', `${patch.replace('inventory.test', 'a b')}${json}${length}`, 400],
    ['with an empty body', `${patch}${json}Content-Length: 0\r\n`, 400],
    ['for a list', `${patch.replace('PATCH', 'GET').replace('/1 ', ' ')}${json}${length}`, 200],
  ] as const) {
    t.strictSame((await statusesTo(head)).statuses, [status], title)
  }
  for (const head of [
    `${patch}${json}${length}`,
    `${patch}${json}Transfer-Encoding: chunked\r\n`,
    `${patch.replace('100-continue', '100-Continue')}${json}${length}`,
    `${patch}${expect}${json}${length}`,
  ]) {
    t.equal((await statusesTo(head)).statuses[0], 100)
  }
})

t.test('an expectation other than 100-continue is ignored', async (t) => {
  const { port } = await setUp(t)
  const list = `GET /v1/inventory HTTP/1.1\r\n${host}${authorization}${close}`
  for (const value of ['a-miracle', '', ',']) {
    t.strictSame(statusesOf(await sendRaw(port, `${list}Expect: ${value}\r\n\r\n`)), [200], value)
  }
})

t.test('a 415 says what would be taken', async (t) => {
  const { send, database } = await setUp(t)
  const patch = (headers: Record<string, string>): ReturnType<typeof send> =>
    send('PATCH', '/v1/inventory/1', { headers, body })
  for (const type of [
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
  ]) {
    const { status, headers } = await patch({ 'content-type': type })
    t.equal(status, 415, type)
    t.equal(headers['accept-patch'], 'application/json', type)
    t.equal(headers['accept-encoding'], undefined, type)
  }
  for (const coding of ['gzip', 'identity, br', 'x']) {
    const { status, headers } = await patch({
      'content-type': 'application/json',
      'content-encoding': coding,
    })
    t.equal(status, 415, coding)
    t.equal(headers['accept-encoding'], 'identity', coding)
    t.equal(headers['accept-patch'], undefined, coding)
  }
  t.strictSame(await quantities(database), [{ quantity: '9' }])
  for (const type of [
    'application/json',
    'Application/JSON',
    'application/json; charset=utf-8',
    'application/json;charset=UTF8',
    'application/json ; Charset="UTF-8"',
    'application/json; x=";charset=utf-16"',
    'application/json; x="\\";charset=utf-16"',
    'application/json; xcharset=utf-16',
    'application/json;',
  ]) {
    t.equal((await patch({ 'content-type': type })).status, 200, type)
  }
  t.equal((await patch({ 'content-type': 'application/json', 'content-encoding': 'Identity' })).status, 200)
})
