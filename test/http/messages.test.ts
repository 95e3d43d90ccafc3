import { once } from 'node:events'
import t from 'tap'
import { startService } from '../support/app.ts'
import { isError } from '../support/http.ts'
import { authorization, close, host, json, updateRequest } from '../support/messages.ts'
import { openRaw, parseResponse, sendRaw, statusesIn } from '../support/raw.ts'

const { port, database, log } = await startService(t, ['1,9,available'])

const quantity = async () => (await database.query('SELECT quantity FROM inventory'))[0]?.['quantity']

const chunked = 'Transfer-Encoding: chunked\r\n'
const common = `${host}${authorization}${close}`
const body = '{"quantity":5}'
const length = `Content-Length: ${body.length}\r\n`

/** An update that changes the entry. Sent behind a message that is refused, it must have no effect. */
const update = updateRequest(5)

const get = (target: string, headers = ''): string => `GET ${target} HTTP/1.1\r\n${common}${headers}\r\n`
const list = (headers = ''): string => get('/v1/inventory', headers)
const patch = (headers: string, content = body, target = '/v1/inventory/1'): string =>
  `PATCH ${target} HTTP/1.1\r\n${common}${headers}\r\n${content}`
/** An update with these headers besides its type, on a connection that would stay open. */
const framed = (headers: string, content: string): string =>
  `PATCH /v1/inventory/x HTTP/1.1\r\n${host}${authorization}${json}${headers}\r\n${content}`
const inChunks = `e\r\n${body}\r\n0\r\n\r\n`

/** Messages by the error that each gets. */
const refused: [status: number, code: string, messages: string[]][] = [
  [404, 'not_found', [get('http://a/v1/x/../inventory'), get('ftp://a/v1/inventory')]],
  [
    431,
    'headers_too_large',
    [list(`X: ${'x'.repeat(20_000)}\r\n`), list('X: 1\r\n'.repeat(254)), get(`/${'x'.repeat(20_000)}`)],
  ],
  [
    400,
    'invalid_request',
    [
      // Other protocols.
      'garbage\r\n\r\n',
      '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
      'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      ...['DESCRIBE /x RTSP/1.0', 'GET_PARAMETER /x RTSP/2.0', 'GET / HTTP/2.0', 'FETCH / HTTP/1.1'].map(
        (line) => `${line}\r\n${common}\r\n`,
      ),

      // Targets.
      ...['/v1/inventory/%zz', '/%ff', '/v1/é', '/v1/pet shop', 'v1/inventory', '/#', '/v1/inventory/1?x#y']
        .concat(['a,b/', 'user:password@a/', 'a:x/', '/', ':80/', 'a%zz/'].map((rest) => `http://${rest}`))
        .map((target) => get(target)),
      patch(`${json}${length}`, body, '/v1/inventory/1#'),

      // Header fields.
      ...[': x\r\n', 'X : y\r\n', 'X: \0\r\n', 'X: a\r\n b\r\n', host].map(list),
      `GET /v1/inventory HTTP/1.1\r\n${authorization}${close}\r\n`,
      ...['a b', 'a/b', 'user@a', 'a,b', 'a:x', '::1', '[::1', 'a?b', 'a#b', 'a\\b', 'http://a', 'ä'].map(
        (value) => `GET /livez HTTP/1.1\r\nHost: ${value}\r\n${close}\r\n`,
      ),

      // The length of the body. Nothing may be found in it, or behind it.
      patch(`${json}Content-Length: 0\r\n`, ''),
      ...['-1', '+0', '0x0', `0, ${update.length}`, '\r\n 0'].map((value) =>
        framed(`Content-Length: ${value}\r\n`, ''),
      ),
      framed(`Content-Length: 0\r\nContent-Length: ${update.length}\r\n`, ''),
      framed('Content-Len\0gth: 0\r\n', ''),
      framed('X: y\rContent-Length: 0\r\n', ''),
      framed('X: y\nContent-Length: 0\r\n', ''),
      framed('Content-Length: 0\r\n', '').replaceAll('\r\n', '\n'),
      ...['gzip, chunked', 'x;y="z", chunked', 'gzip', 'chunked, chunked', 'xchunked', ''].map((coding) =>
        framed(`Transfer-Encoding: ${coding}\r\n`, inChunks),
      ),
      framed(`${chunked}Transfer-Encoding: identity\r\n`, inChunks),
      framed(`Content-Length: 6\r\n${chunked}`, '0\r\n\r\n'),
      framed(`${chunked}Content-Length: 4\r\n`, '0\r\n\r\n'),
      framed(`Transfer-Encoding:\tchunked\r\n${length}`, inChunks),
      framed(`Transfer-Encoding : chunked\r\n${length}`, inChunks),
      framed('X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n', ''),
      framed(`Connection: keep-alive\r\n${chunked}`, inChunks).replace('HTTP/1.1', 'HTTP/1.0'),
      ...['+0\r\n\r\n', '0x0\r\n\r\n', '10000000000000000\r\n\r\n', '1\n \n0\n\n', '1\r\n  \r\n0\r\n\r\n']
        .concat(`2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`)
        .map((chunks) => framed(chunked, chunks)),
    ],
  ],
]

/** Messages that are accepted. */
const accepted = [
  `GET /v1/inventory HTTP/1.0\r\n${authorization}\r\n`,
  `\r\n${list()}`,
  list('X: 1\r\n'.repeat(253)),
  list('Expect: a-miracle\r\n'),
  get('HTTPS://[::1]:80/v1/inventory'),
  ...['a:80', '127.0.0.1', 'a:99999', '1.2.3.4.5', 'xn--a'].map((host) => get(`http://${host}/v1/inventory`)),
  ...['', 'A_b-c.example', 'inventory.test:3000', ' 127.0.0.1:80', '[::1]:3000'].map(
    (value) => `GET /v1/inventory HTTP/1.1\r\nHost: ${value}\r\n${authorization}${close}\r\n`,
  ),
]

/** The beginning of a message, for a test's name. */
function shorten(message: string): string {
  const lines = message.replace(common, '').replace(`${host}${authorization}${json}`, '')
  return JSON.stringify(lines.slice(0, 80))
}

t.test('a refused message gets the standard error, and nothing behind it is done', async (t) => {
  for (const [status, code, messages] of refused) {
    for (const message of messages) {
      const title = shorten(message)
      const text = await sendRaw(port, Buffer.from(message + update, 'latin1'))
      t.strictSame(statusesIn(text), [status], `${title}: nothing behind it is answered`)
      const answer = parseResponse(text)
      isError(t, answer, status, code, title)
      const length = String(Buffer.byteLength(answer.text))
      const headers = { 'content-length': length, 'cache-control': 'no-store', connection: 'close' }
      t.match(answer.headers, { ...headers, 'x-request-id': /^[0-9a-f-]{36}$/ }, title)
    }
  }
  t.equal(await quantity(), '9')
  const warnings = log.filter(({ level }) => Number(level) >= 40)
  t.strictSame(warnings, [], 'no refused message is worth a warning')
})

t.test('a message that RFC 9112 allows is accepted', async (t) => {
  for (const message of accepted) {
    t.strictSame(statusesIn(await sendRaw(port, message)), [200], shorten(message))
  }
  const expecting = patch(`${json}Expect: 100-Continue\r\n${length}`)
  t.strictSame(statusesIn(await sendRaw(port, expecting)), [100, 200])
})

t.test('pipelined requests are answered in order, up to the one that ends the connection', async (t) => {
  const bad = framed('Content-Length: 2\r\n', '{}')
  const invalid = framed(chunked, 'invalid\r\n')
  const open = `GET /v1/inventory HTTP/1.1\r\n${host}`
  const hidden = updateRequest(7)
  const large = updateRequest(7).replace(
    /Content-Length.*/s,
    `Content-Length: 5000\r\n\r\n${' '.repeat(5000)}`,
  )
  const cases: [title: string, message: string, behind: string, statuses: number[]][] = [
    ['errors of the client', bad + bad + list(), hidden, [400, 400, 200]],
    ['no key', `${open}\r\n${open}${close}\r\n`, hidden, [401, 401]],
    ['two Hosts', `${open}\r\n${open}${host}${close}\r\n`, hidden, [401, 400]],
    ['two keys', `${open}${authorization}${authorization}${close}\r\n`, '', [401]],
    ['two types of a body', patch(`${json}${json}${length}`), '', [415]],
    ['no such path', get('/x'), hidden + hidden, [404]],
    ['malformed JSON', update.replace('{', '['), hidden, [400]],
    ['another charset', update.replace('json', 'json; charset=utf-16'), hidden, [415]],
    ['a large body', large, hidden, [413]],
    ['garbage behind the last request', list(), 'garbage\r\n\r\n', [200]],
    ['garbage behind an update', update, `garbage\r\n\r\n${hidden}`, [200, 400]],
    ['another protocol behind an update', update, `DESCRIBE /x RTSP/1.0\r\n${host}\r\n`, [200, 400]],
    ['an invalid chunk', update, invalid + hidden, [200, 400]],
    ['an invalid chunk without a key', update, invalid.replace(authorization, '') + hidden, [200, 400]],
  ]
  for (const [title, message, behind, statuses] of cases) {
    t.strictSame(statusesIn(await sendRaw(port, message + behind)), statuses, title)
    const { socket, received } = await openRaw(port)
    socket.write(message)
    await once(socket, 'data')
    socket.write(behind)
    t.strictSame(statusesIn(await received), statuses, `${title}, in two pieces`)
  }
  t.equal(await quantity(), '5')
})
