import { once } from 'node:events'
import t from 'tap'
import { MAX_PIPELINED } from '../../src/http/connections.ts'
import { endlessLimits, longLimits, startService } from '../support/app.ts'
import { eventually, until } from '../support/eventually.ts'
import { authorization, host, json, listRequest, openUnread, updateRequest } from '../support/messages.ts'
import { persistentCaller } from '../support/program.ts'
import { openRaw, responsesIn, sendRaw, statusesIn } from '../support/raw.ts'

const entries = ['1,0,available']
const list = listRequest()
const upgrade = `GET /livez HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n`

t.test('a client that closes its side behind its requests gets every answer, then the end', async (t) => {
  const { port, send, database } = await startService(t, entries)
  const several = [updateRequest(3), list, updateRequest(-1), updateRequest(6)].join('')
  const cases: [title: string, bytes: string, statuses: number[]][] = [
    ['several requests', several, [200, 200, 400, 200]],
    ['HTTP/1.0', list.replace('HTTP/1.1', 'HTTP/1.0'), [200]],
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

t.test('a request with Upgrade is served, and ends its connection, whatever is sent behind it', async (t) => {
  const { port, database } = await startService(t, entries)
  const hidden = updateRequest(7)
  const carrier = `${updateRequest(0).replace(/Content-Length.*/s, '')}Content-Length: ${hidden.length}\r\n\r\n`
  for (const pieces of [[upgrade], [upgrade + hidden], [upgrade + carrier, hidden], [upgrade, hidden]]) {
    const { socket, received } = await openRaw(port)
    for (const piece of pieces) {
      socket.write(piece)
      if (piece !== pieces.at(-1)) await once(socket, 'data')
    }
    const answers = responsesIn(await received)
    t.match(answers, [{ status: 200, headers: { connection: 'close' } }])
    t.equal(answers.length, 1)
  }
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '0' }])
})

t.test('behind a response that ends the connection, nothing is done', async (t) => {
  const { port, database } = await startService(t, entries)
  const last: [bytes: string, status: number][] = [
    [updateRequest(1).replace('{', '['), 400],
    [updateRequest(1).replace('json', 'json; charset=utf-16'), 415],
    [updateRequest(1).replace(/Content-Length.*/s, `Content-Length: 5000\r\n\r\n${' '.repeat(5000)}`), 413],
    [listRequest('Connection: close\r\n'), 200],
  ]
  for (const [bytes, status] of last)
    t.strictSame(statusesIn(await sendRaw(port, bytes + updateRequest(7))), [status])
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '0' }])
})

t.test('behind another request, one without a key and with a malformed body gets one answer', async (t) => {
  const { port } = await startService(t, entries)
  const head = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${json}Transfer-Encoding: chunked\r\n\r\n`
  const answers = statusesIn(await sendRaw(port, `${updateRequest(5)}${head}no chunk\r\n`))
  t.equal(answers.length, 2)
})

t.test('requests sent behind one another are answered in order, and too many are not', async (t) => {
  const { port, database, send } = await startService(t, entries)
  const updates = Array.from({ length: MAX_PIPELINED }, (_, index) => updateRequest(index + 1))
  const { socket, received } = await openRaw(port)
  socket.end(updates.join(''))
  const answered = responsesIn(await received).map(({ text }) => JSON.parse(text).quantity)
  t.strictSame(answered, [...Array(MAX_PIPELINED + 1).keys()].slice(1))

  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(2, 100000) n")
  const { text } = await send('GET', '/v1/inventory')
  const reading = await openRaw(port)
  reading.socket.end(list.repeat(MAX_PIPELINED))
  const lists = responsesIn(await reading.received)
  t.equal(lists.length, MAX_PIPELINED)
  for (const answer of lists) t.equal(answer.text, text)

  const answers = responsesIn(await sendRaw(port, list.repeat(2000)))
  t.ok(answers.length <= MAX_PIPELINED, 'the connection is closed')
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('of a connection that is lost with requests behind one another, nothing stays', async (t) => {
  const { port, database, send, metric } = await startService(t, entries, { timings: endlessLimits })
  const release = await database.hold('UPDATE inventory SET quantity = 1')
  const { socket, received } = await openRaw(port)
  socket.write(updateRequest(5) + list + updateRequest(6))
  const inFlight = (): Promise<number> => metric('inventory_requests_in_flight')
  await eventually('the first of the requests', async () => (await inFlight()) === 1)
  socket.resetAndDestroy()
  await received
  await release()
  await eventually('the end of the requests', async () => (await inFlight()) === 0)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('while the service stops, the last response on each connection says that it ends', async (t) => {
  const app = await startService(t, entries, { timings: endlessLimits })
  const requests: [bytes: string, status: number][] = [
    [list, 200],
    [updateRequest(3), 200],
    [list.replace(authorization, ''), 401],
    [`POST /v1/pets HTTP/1.1\r\n${host}${authorization}${json}Content-Length: 2\r\n\r\n{}`, 404],
    [updateRequest(3).replace(json, ''), 415],
  ]
  const cases = requests.flatMap(([bytes, status]) =>
    ['1.1', '1.0'].map((version) => ({
      bytes: bytes.replace('HTTP/1.1\r\n', `HTTP/${version}\r\nConnection: keep-alive\r\n`),
      status,
    })),
  )
  const connections = await Promise.all(cases.map(() => openRaw(app.port)))
  const release = await app.database.hold('UPDATE inventory SET quantity = 1')
  for (const { socket } of connections) socket.write(updateRequest(7))
  // They have been read before.
  await app.send('GET', '/livez')
  const closed = app.close()
  const isOpen = (): Promise<boolean> => app.send('GET', '/livez').then(Boolean, () => false)
  await eventually('the port to be closed', async () => !(await isOpen()))
  for (const [index, { bytes }] of cases.entries()) connections[index]?.socket.write(bytes)
  await release()
  for (const [index, { bytes, status }] of cases.entries()) {
    const answers = responsesIn((await connections[index]?.received) ?? '')
    const ends = answers.map(({ status, headers }) => `${status} ${headers.connection}`)
    t.strictSame(ends, ['200 keep-alive', `${status} close`], bytes.slice(0, 60))
  }
  await closed
})

t.test('a stop is announced to health checks and then to clients, and cuts off none of them', async (t) => {
  // Clients get their last answer before they run out of time for another request.
  const timings = { app: { ...longLimits.app, drainMs: 200, closeGraceMs: longLimits.app.stallMs } }
  const { port, close } = await startService(t, entries, { timings })
  let answers = 0
  const caller = async (): Promise<void> => {
    const send = persistentCaller(t, port)
    for (let isLast = false; !isLast; answers++) {
      const { status, headers } = await send('GET', '/v1/inventory')
      if (status !== 200) throw new Error(`The status ${status}`)
      isLast = headers.connection === 'close'
    }
  }
  const callers = Promise.all(Array.from({ length: 32 }, caller))
  const check = persistentCaller(t, port)
  t.equal((await check('GET', '/readyz')).status, 200)
  await until('answers', () => answers > 1000)
  const closed = close()
  const { status, headers } = await check('GET', '/readyz')
  t.equal(status, 404)
  await callers
  if (headers.connection !== 'close') await check('GET', '/livez')
  await closed
})

t.test('a stop ends the connections that cannot be completed', async (t) => {
  const timings = { app: { ...longLimits.app, closeMs: 200 }, requests: endlessLimits.requests }
  const { port, database, close } = await startService(t, entries, { timings })
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(2, 100000) n")
  for (let count = 0; count < 20; count++) await openUnread(t, port)
  const release = await database.hold('UPDATE inventory SET quantity = 1')
  const upgrading = updateRequest(6, 'Connection: Upgrade\r\nUpgrade: h2c\r\n')
  const incomplete = [updateRequest(6).slice(0, -1), upgrading.slice(0, -1), list.slice(0, -2)]
  const others = [updateRequest(5).repeat(3), ...incomplete]
  const connections = await Promise.all(others.map(() => openRaw(port)))
  for (const [index, bytes] of others.entries()) connections[index]?.socket.write(bytes)
  await close()
  for (const { received } of connections) t.equal(await received, '')
  await release()
})

/** What a client has sent when it resets its connection: first what is not answered yet. */
const [half, connect, garbage] = [
  updateRequest(1).slice(0, -7),
  `CONNECT a:1 HTTP/1.1\r\n${host}\r\n`,
  'x\r\n\r\n',
]
const unanswered = ['', list.slice(0, -9), updateRequest(1).slice(0, -14), half]
const answered = [connect, `${connect}${'x'.repeat(100_000)}`, upgrade, list, list.replace(authorization, '')]
  .concat(garbage, `GET / HTTP/1.1\r\n${host}X: ${'x'.repeat(20_000)}\r\n\r\n`)
  .concat([list, connect, upgrade, 'GET /v1/inv', garbage].map((behind) => list + behind))
  .concat(updateRequest(1) + half)
const RESETS_PER_STAGE = 30

/** Sends bytes and resets the connection: at once, or when the first bytes of an answer have come. */
async function reset(port: number, bytes: string, awaitsAnswer: boolean): Promise<void> {
  const { socket, received } = await openRaw(port)
  const answer = awaitsAnswer ? Promise.race([once(socket, 'data').catch(() => {}), received]) : undefined
  if (bytes !== '') await new Promise<void>((resolve) => socket.write(bytes, () => resolve()))
  await answer
  socket.resetAndDestroy()
  await received
}

t.test('the service lives on when clients reset their connections at every stage', async (t) => {
  const { port, send, log, close } = await startService(t, ['1,9,available'])
  for (const bytes of [...unanswered, ...answered]) {
    const resets = Array.from({ length: RESETS_PER_STAGE }, (_, index) =>
      reset(port, bytes, answered.includes(bytes) && index % 2 === 0),
    )
    await Promise.all(resets)
    t.equal((await send('GET', '/v1/inventory')).status, 200, JSON.stringify(bytes.slice(0, 300)))
  }
  await close()
  const errors = log.filter(({ level }) => Number(level) >= 50)
  t.strictSame(errors, [])
})
