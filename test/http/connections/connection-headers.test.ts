import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { apiKey, startApp, type TestApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { openRaw, parseResponse, sendRaw } from '../../support/raw.ts'

const host = 'Host: inventory.test\r\n'
const common = `${host}Authorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`

/** A request of each kind that is answered in a different place: request line, header lines, body, and the status. */
const requests: [title: string, line: string, headers: string, body: string, status: number][] = [
  ['a list', 'GET /v1/inventory', common, '', 200],
  ['an update', 'PATCH /v1/inventory/1', common, '{"quantity":5}', 200],
  ['no key', 'GET /v1/inventory', host, '', 401],
  ['no route', 'GET /nothing', host, '', 404],
  ['no route under /v1', 'POST /v1/pets', common, '{}', 404],
  ['no such pet', 'PATCH /v1/inventory/2', common, '{"quantity":5}', 404],
  ['an unknown method', 'DELETE /v1/inventory', common, '', 405],
  ['a bad percent-escape', 'GET /%zz', host, '', 400],
  ['an invalid petId', 'PATCH /v1/inventory/x', common, '{}', 400],
  ['an invalid body', 'PATCH /v1/inventory/1', common, '{"quantity":', 400],
  ['a body that is too large', 'PATCH /v1/inventory/1', common, ' '.repeat(5000), 413],
  [
    'a body of another type',
    'PATCH /v1/inventory/1',
    `${host}Authorization: Bearer ${apiKey}\r\n`,
    '{}',
    415,
  ],
]

function message(
  version: string,
  [, line, headers, body]: (typeof requests)[number],
  connection = '',
): string {
  const length = body === '' ? '' : `Content-Length: ${body.length}\r\n`
  return `${line} HTTP/${version}\r\n${headers}${connection}${length}\r\n${body}`
}

/** Sends a request, then one that ends the connection where it is still open, and returns all that came back. */
async function followed(port: number, bytes: string): Promise<string[]> {
  const text = await sendRaw(port, `${bytes}GET /livez HTTP/1.1\r\n${host}Connection: close\r\n\r\n`)
  return text.split(/(?=HTTP\/1\.1 \d)/)
}

async function start(t: Parameters<typeof startApp>[0]): Promise<TestApp> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  return startApp(t, database.url)
}

t.test('a response says that its connection stays open where it does, and only there', async (t) => {
  const { port } = await start(t)
  const clients: [title: string, version: string, header: string, stays: boolean][] = [
    ['HTTP/1.1', '1.1', '', true],
    ['HTTP/1.1 with Connection: close', '1.1', 'Connection: close\r\n', false],
    ['HTTP/1.0', '1.0', '', false],
    ['HTTP/1.0 with Connection: keep-alive', '1.0', 'Connection: keep-alive\r\n', true],
  ]
  for (const [client, version, header, stays] of clients) {
    for (const request of requests) {
      const [title, , , , status] = request
      const [first = '', second] = await followed(port, message(version, request, header))
      const answer = parseResponse(first)
      t.equal(answer.status, status, `${client}: ${title}`)
      t.equal(answer.headers.get('connection'), stays ? 'keep-alive' : 'close', `${client}: ${title}`)
      t.equal(
        second !== undefined,
        stays,
        `${client}: the connection of ${title} ${stays ? 'stays' : 'ends'}`,
      )
    }
  }
})

/** Begins to stop the service; resolves when it says so. */
async function stopping({ send, close }: TestApp): Promise<{ closed: Promise<void> }> {
  const closed = close()
  for (let tries = 0; (await send('GET', '/readyz')).status !== 503; tries++) {
    if (tries === 100) throw new Error('/readyz does not say that the service stops')
    await setTimeout(5)
  }
  return { closed }
}

t.test('while the service stops, every response says that its connection ends', async (t) => {
  for (const version of ['1.1', '1.0']) {
    const app = await start(t)
    const connections = await Promise.all(requests.map(() => openRaw(app.port)))
    const { closed } = await stopping(app)
    for (const [index, request] of requests.entries()) {
      const [title, , , , status] = request
      connections[index]?.socket.write(message(version, request, 'Connection: keep-alive\r\n'))
      const answer = parseResponse((await connections[index]?.received) ?? '')
      t.equal(answer.status, status, `HTTP/${version}: ${title}`)
      t.equal(answer.headers.get('connection'), 'close', `HTTP/${version}: ${title}`)
    }
    await closed
  }
})

t.test(
  'while the service stops, the last of several pipelined requests is the one that ends it',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [['1', 0, 'available']])
    const app = await startApp(t, database.url)
    const before = await openRaw(app.port)
    const release = await database.hold('UPDATE inventory SET quantity = 1')
    const pipelined = [7, 8, 9]
      .map((quantity) =>
        message('1.1', ['', 'PATCH /v1/inventory/1', common, JSON.stringify({ quantity }), 200]),
      )
      .join('')
    before.socket.write(pipelined)
    await app.send('GET', '/livez')
    const { closed } = await stopping(app)
    const after = await openRaw(app.port)
    after.socket.write(pipelined)
    await app.send('GET', '/livez')
    await release()
    for (const received of await Promise.all([before.received, after.received])) {
      const answers = received.split(/(?=HTTP\/1\.1 \d)/).map(parseResponse)
      t.strictSame(
        answers.map(({ status, headers, body }) => [
          status,
          headers.get('connection'),
          JSON.parse(body).quantity,
        ]),
        [
          [200, 'keep-alive', 7],
          [200, 'keep-alive', 8],
          [200, 'close', 9],
        ],
      )
    }
    await closed
  },
)
