import { once } from 'node:events'
import t from 'tap'
import { serviceTimings, startService } from '../../support/app.ts'
import { eventually } from '../../support/eventually.ts'
import { authorization, host, json, listRequest, updateRequest } from '../../support/messages.ts'
import { openRaw, responsesIn, sendRaw, statusesIn } from '../../support/raw.ts'

const entries = ['1,0,available']
const common = `${host}${authorization}${json}`
const last = `GET /livez HTTP/1.1\r\n${host}Connection: close\r\n\r\n`

/** Two programs may read its target in two ways, so nothing behind it is served. */
const ambiguous = 'a bad percent-escape'

/** A request of each kind that is answered in a different place. */
const requests: [title: string, line: string, headers: string, body: string, status: number][] = [
  ['a list', 'GET /v1/inventory', common, '', 200],
  ['an update', 'PATCH /v1/inventory/1', common, '{"quantity":5}', 200],
  ['no key', 'GET /v1/inventory', host, '', 401],
  ['no route under /v1', 'POST /v1/pets', common, '{}', 404],
  [ambiguous, 'GET /%zz', host, '', 400],
  ['an invalid body', 'PATCH /v1/inventory/1', common, '{"quantity":', 400],
  ['a body that is too large', 'PATCH /v1/inventory/1', common, ' '.repeat(5000), 413],
  ['a body of another type', 'PATCH /v1/inventory/1', `${host}${authorization}`, '{}', 415],
]

function message(version: string, request: (typeof requests)[number], connection: string): string {
  const [, line, headers, body] = request
  const length = body === '' ? '' : `Content-Length: ${body.length}\r\n`
  return `${line} HTTP/${version}\r\n${headers}${connection}${length}\r\n${body}`
}

t.test('a response says that its connection stays open where it does, and only there', async (t) => {
  const { port } = await startService(t, entries)
  const clients: [version: string, header: string, stays: boolean][] = [
    ['1.1', '', true],
    ['1.1', 'Connection: close\r\n', false],
    ['1.0', '', false],
    ['1.0', 'Connection: keep-alive\r\n', true],
  ]
  for (const [version, header, stays] of clients) {
    for (const request of requests) {
      const answers = responsesIn(await sendRaw(port, `${message(version, request, header)}${last}`))
      const ends = answers.map(({ status, headers }) => `${status} ${headers.connection}`)
      const [title, , , , status] = request
      const expected =
        stays && title !== ambiguous ? [`${status} keep-alive`, '200 close'] : [`${status} close`]
      t.strictSame(ends, expected, `${title} by HTTP/${version} ${header}`)
    }
  }
})

t.test('while the service stops, the last response on each connection says that it ends', async (t) => {
  const updates = { wait: 60_000, check: 100 }
  const app = await startService(t, entries, { timings: { app: { ...serviceTimings.app, updates } } })
  const cases = ['1.1', '1.0'].flatMap((version) => requests.map((request) => [version, request] as const))
  const connections = await Promise.all(cases.map(() => openRaw(app.port)))
  const before = await openRaw(app.port)
  const release = await app.database.hold('UPDATE inventory SET quantity = 1')
  const pipelined = [7, 8, 9].map((quantity) => updateRequest(quantity)).join('')
  before.socket.write(pipelined)
  await app.send('GET', '/livez')
  const closed = app.close()
  await eventually(
    '/readyz to say that the service stops',
    async () => (await app.send('GET', '/readyz')).status === 404,
  )
  const after = await openRaw(app.port)
  after.socket.write(pipelined)
  for (const [index, [version, request]] of cases.entries())
    connections[index]?.socket.write(message(version, request, 'Connection: keep-alive\r\n'))
  await app.send('GET', '/livez')
  await release()
  for (const received of await Promise.all([before.received, after.received])) {
    const answers = responsesIn(received).map(
      ({ headers, text }) => `${JSON.parse(text).quantity} ${headers.connection}`,
    )
    t.strictSame(answers, ['7 keep-alive', '8 keep-alive', '9 close'])
  }
  for (const [index, [version, request]] of cases.entries()) {
    const [answer] = responsesIn((await connections[index]?.received) ?? '')
    t.equal(answer?.status, request.at(-1), `HTTP/${version}: ${request[0]}`)
    t.equal(answer?.headers.connection, 'close', `HTTP/${version}: ${request[0]}`)
  }
  await closed
})

t.test('a client that closes its side behind its requests gets every answer, then the end', async (t) => {
  const { port, send, database } = await startService(t, entries)
  const list = listRequest()
  const cases: [title: string, bytes: string, statuses: number[]][] = [
    [
      'several requests',
      `${updateRequest(3)}${list}${updateRequest(-1)}${updateRequest(6)}`,
      [200, 200, 400, 200],
    ],
    ['HTTP/1.0', message('1.0', ['', 'GET /v1/inventory', common, '', 200], ''), [200]],
    ['half a head', list.slice(0, -2), [400]],
    ['half a body', updateRequest(7).slice(0, -3), [400]],
    ['nothing', '', []],
  ]
  for (const [title, bytes, statuses] of cases) {
    const { socket, received } = await openRaw(port)
    socket.end(bytes)
    t.strictSame(statusesIn(await received), statuses, title)
  }
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '6' }])

  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(2, 100000) n")
  const { text } = await send('GET', '/v1/inventory')
  const reading = await openRaw(port)
  reading.socket.write(list)
  await once(reading.socket, 'data')
  reading.socket.end()
  t.ok((await reading.received).includes(text.slice(-1000)), 'the end of the list has arrived')
})
