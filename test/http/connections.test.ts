import { once } from 'node:events'
import type { Socket } from 'node:net'
import t from 'tap'
import { MAX_PIPELINED } from '../../src/http/connections.ts'
import { endlessLimits, longLimits, startApp, startService } from '../support/app.ts'
import { eventually, until } from '../support/eventually.ts'
import { isError } from '../support/http.ts'
import { authorization, host, json, listRequest, openUnread, updateRequest } from '../support/messages.ts'
import { persistentCaller } from '../support/program.ts'
import { openRaw, parseResponse, responsesIn, sendRaw, statusesIn } from '../support/raw.ts'

const entries = ['1,0,available']
const service = await startService(t, entries, { timings: endlessLimits })
const { port, send, database } = service
t.beforeEach(() => database.query('UPDATE inventory SET quantity = 0'))

const quantity = async () => (await database.query('SELECT quantity FROM inventory'))[0]?.['quantity']

const list = listRequest()
const upgrade = `GET /livez HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n`

t.test('a client that closes its side behind its requests gets every answer, then the end', async (t) => {
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
  t.equal(await quantity(), '6')
})

t.test('a request with Upgrade is served, and ends its connection, whatever is sent behind it', async (t) => {
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
  t.equal(await quantity(), '0')
})

t.test('requests sent behind one another are answered in order, and too many are not', async (t) => {
  const { port, send } = await startService(t, 100_000)
  const updates = Array.from({ length: MAX_PIPELINED }, (_, index) => updateRequest(index + 1))
  const { socket, received } = await openRaw(port)
  socket.end(updates.join(''))
  const answered = responsesIn(await received).map(({ text }) => JSON.parse(text).quantity)
  t.strictSame(answered, [...Array(MAX_PIPELINED + 1).keys()].slice(1))

  const { text } = await send('GET', '/v1/inventory')
  const reading = await openRaw(port)
  reading.socket.write(list.repeat(MAX_PIPELINED))
  await once(reading.socket, 'data')
  reading.socket.end()
  const lists = responsesIn(await reading.received)
  t.equal(lists.length, MAX_PIPELINED)
  for (const answer of lists) t.equal(answer.text, text)

  const answers = responsesIn(await sendRaw(port, list.repeat(2000)))
  t.ok(answers.length <= MAX_PIPELINED, 'the connection is closed')
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('of a connection that is lost with requests behind one another, nothing stays', async (t) => {
  const release = await database.hold('UPDATE inventory SET quantity = 1')
  const { socket, received } = await openRaw(port)
  socket.write(updateRequest(5) + list + updateRequest(6))
  const inFlight = (): Promise<number> => service.metric('inventory_requests_in_flight')
  await eventually('the first of the requests', async () => (await inFlight()) === 1)
  socket.resetAndDestroy()
  await received
  await release()
  await eventually('the end of the requests', async () => (await inFlight()) === 0)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

/** Far more than the service has connections to the database; this process holds both ends of each. */
const SLOW_CLIENTS = 200

/** How long a request may take to arrive, so short that the test need not wait for production's ten seconds. */
const ARRIVAL_MS = 2000

/** Sends one byte after the other for as long as the server listens. */
function trickle(socket: Socket, byte: string): void {
  const timer = setInterval(() => socket.write(byte), 500)
  socket.once('close', () => clearInterval(timer))
}

t.test('clients that never end their request each get a 408, and hold up nobody', async (t) => {
  const timings = { app: { ...longLimits.app, arrivalMs: ARRIVAL_MS } }
  const { port, send, update } = await startApp(t, database.url, { timings })
  const halfBody = updateRequest(7).slice(0, -1)
  const slow = await Promise.all(
    Array.from({ length: SLOW_CLIENTS }, async (_, index) => {
      const connection = await openRaw(port)
      const [start, more] = index % 2 === 0 ? [`${list.slice(0, -2)}X-Slow: `, 'x'] : [halfBody, ' ']
      connection.socket.write(start.replace('Content-Length: 14', 'Content-Length: 1000'))
      // Every other two send nothing more.
      if (index % 4 < 2) trickle(connection.socket, more)
      return connection
    }),
  )
  const answered = sendRaw(port, halfBody.replace(authorization, ''))
  const silent = sendRaw(port, '')
  let waiting = true
  const answers = Promise.all(slow.map(({ received }) => received)).finally(() => (waiting = false))
  let served = 0
  for (; waiting; served++) {
    const { status, text } = await update(1, served % 1000)
    const list = await send('GET', '/v1/inventory')
    if (status !== 200 || list.text !== `[${text}]`)
      throw new Error(`${status} ${text}, then ${list.status} ${list.text}`)
  }
  t.ok(served > 0, `${served} updates and lists meanwhile`)
  for (const text of await answers) isError(t, parseResponse(text), 408, 'request_timeout')
  t.strictSame(statusesIn(await answered), [401], 'an answered request gets no second answer')
  t.equal(await silent, '', 'a connection on which nothing was asked gets no answer')
  // No part of a request was taken for a whole one.
  t.equal(await quantity(), String((served - 1) % 1000))
})

t.test('a client that keeps its side open after an error, and sends on, is disconnected', async (t) => {
  const { socket, received } = await openRaw(port, { allowHalfOpen: true })
  socket.write('no HTTP\r\n\r\n')
  trickle(socket, 'x')
  t.match(await received, /^HTTP\/1\.1 400 /)
})

t.test('while the service stops, the last response on each connection says that it ends', async (t) => {
  const app = await startApp(t, database.url, { timings: endlessLimits })
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
  const release = await database.hold('UPDATE inventory SET quantity = 1')
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
  const { port, close } = await startApp(t, database.url, { timings })
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
  const { port, database, close } = await startService(t, 100_000, { timings })
  for (let count = 0; count < 20; count++) await openUnread(t, port)
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 1')
  const upgrading = updateRequest(6, 'Connection: Upgrade\r\nUpgrade: h2c\r\n')
  const incomplete = [updateRequest(6).slice(0, -1), upgrading.slice(0, -1), list.slice(0, -2)]
  const others = [updateRequest(5).repeat(3), ...incomplete]
  const connections = await Promise.all(others.map(() => openRaw(port)))
  for (const [index, bytes] of others.entries()) connections[index]?.socket.write(bytes)
  await close()
  for (const { received } of connections) t.equal(await received, '')
  await release()
})

const half = updateRequest(1).slice(0, -7)
const connect = `CONNECT a:1 HTTP/1.1\r\n${host}\r\n`
const garbage = 'x\r\n\r\n'
/** What a client has sent when it resets its connection: first what is not answered yet. */
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
  for (const bytes of [...unanswered, ...answered]) {
    const resets = Array.from({ length: RESETS_PER_STAGE }, (_, index) =>
      reset(port, bytes, answered.includes(bytes) && index % 2 === 0),
    )
    await Promise.all(resets)
    t.equal((await send('GET', '/v1/inventory')).status, 200, JSON.stringify(bytes.slice(0, 300)))
  }
  await service.close()
  const errors = service.log.filter(({ level }) => Number(level) >= 50)
  t.strictSame(errors, [])
})
