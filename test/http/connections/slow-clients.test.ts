import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { appTimeouts } from '../../../src/http/app.ts'
import { apiKey, longTimings, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { isError } from '../../support/error-shape.ts'
import { json } from '../../support/http.ts'
import { openRaw, parseResponse } from '../../support/raw.ts'

/** Far more than the service has connections to the database; this process holds both ends of each. */
const COUNT = 200

/** How long a request may take to arrive, so short that the test need not wait for production's ten seconds. */
const ARRIVAL_MS = 4000

const head = 'Host: x\r\nContent-Type: application/json\r\n'
const authorization = `Authorization: Bearer ${apiKey}\r\n`

/** Sends one byte after the other for as long as the server listens. */
function trickle(socket: Socket, byte: string): void {
  const timer = setInterval(() => socket.write(byte), 500)
  socket.once('close', () => clearInterval(timer))
}

t.test(`${COUNT} clients that never end their request each get a 408, and hold up nobody`, async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const { port, send } = await startApp(t, database.url, {
    timings: { app: { ...appTimeouts, arrivalMs: ARRIVAL_MS } },
  })
  const slow = await Promise.all(
    Array.from({ length: COUNT }, async (_, index) => {
      const connection = await openRaw(port)
      const { socket } = connection
      if (index % 2 === 0) {
        socket.write(`PATCH /v1/inventory/1 HTTP/1.1\r\n${head}X-Slow: `)
        trickle(socket, 'x')
      } else {
        socket.write(
          `PATCH /v1/inventory/1 HTTP/1.1\r\n${head}${authorization}Content-Length: 1000\r\n\r\n{"quantity":7`,
        )
        trickle(socket, ' ')
      }
      return connection
    }),
  )
  let waiting = true
  const answers = Promise.all(slow.map(({ received }) => received)).finally(() => (waiting = false))
  let served = 0
  while (waiting) {
    const quantity = served % 1000
    const update = await send('PATCH', '/v1/inventory/1', json({ quantity }))
    const list = await send('GET', '/v1/inventory')
    if (update.status !== 200 || list.text !== `[{"petId":1,"quantity":${quantity},"status":"available"}]`) {
      t.fail(`${update.status} ${update.text} ${list.status} ${list.text}`)
      break
    }
    served++
  }
  t.ok(served > 0, `${served} updates and lists meanwhile`)
  for (const text of await answers) {
    const { headers, ...answer } = parseResponse(text)
    isError(t, { ...answer, contentType: headers.get('content-type') }, 408, 'request_timeout')
  }
  t.strictSame(
    await database.query('SELECT quantity FROM inventory'),
    [{ quantity: String((served - 1) % 1000) }],
    'no part of a request was taken for a whole one',
  )
})

t.test('a client that closes its side in the middle of a request is not waited for', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const { port, log } = await startApp(t, database.url)
  const half = await openRaw(port)
  half.socket.end(`GET /v1/inventory HTTP/1.1\r\n${head}`)
  const { headers, ...answer } = parseResponse(await half.received)
  isError(t, { ...answer, contentType: headers.get('content-type') }, 400, 'invalid_request')
  const halfBody = await openRaw(port)
  halfBody.socket.end(
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${head}${authorization}Content-Length: 14\r\n\r\n{"quan`,
  )
  t.match(await halfBody.received, /^(HTTP\/1\.1 400 .*)?$/s)
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '0' }])
  t.notOk(log.some(({ level }) => Number(level) >= 50))
})

t.test('a 408 does not replace the response to the request before it', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const { port, send } = await startApp(t, database.url, {
    timings: { ...longTimings, app: { ...appTimeouts, ...longTimings.app, arrivalMs: 500 } },
  })
  const update = `PATCH /v1/inventory/1 HTTP/1.1\r\n${head}${authorization}Content-Length: 14\r\n\r\n{"quantity":7}`
  /** Sends an update and an incomplete one, with `rest` after a while, and returns the responses. */
  const sendSlowly = async (waitMs: number, rest: string): Promise<string> => {
    const release = await database.hold('SELECT FROM inventory FOR UPDATE')
    const { socket, received } = await openRaw(port)
    socket.write(update + update.slice(0, -1))
    await setTimeout(waitMs)
    socket.write(rest)
    t.equal((await send('GET', '/livez')).status, 200, 'the rest has been read')
    const answered = once(socket, 'data')
    await release()
    await answered
    socket.end()
    return received
  }
  const statusesOf = (text: string): string[] => text.match(/(?<=HTTP\/1\.1 )\d+/g) ?? []

  t.strictSame(statusesOf(await sendSlowly(2000, '')).slice(0, 1), ['200'])
  let text = ''
  // Until the time has run out while the first update waited.
  for (let waitMs = 2000; waitMs < 20_000 && !/connection: close/i.test(text); waitMs *= 2) {
    text = await sendSlowly(waitMs, update.slice(-1))
    t.strictSame(statusesOf(text), ['200', '200'], 'a request that is completed meanwhile is answered once')
  }
})

t.test('a request that never becomes complete does not keep a server from stopping', async (t) => {
  const database = await testDatabase(t)
  // Far longer than this test may take.
  const timings = { app: { ...appTimeouts, arrivalMs: 300_000 } }
  const { port, send, close } = await startApp(t, database.url, { timings })
  const clients = await Promise.all(
    [authorization, `${authorization}Connection: Upgrade\r\nUpgrade: h2c\r\n`].map(async (header) => {
      const client = await openRaw(port)
      client.socket.write(`PATCH /v1/inventory/1 HTTP/1.1\r\n${head}${header}Content-Length: 14\r\n\r\n{`)
      return client
    }),
  )
  t.equal((await send('GET', '/livez')).status, 200, 'the incomplete requests have been read')
  await close()
  for (const { received } of clients) t.match(await received, /^HTTP\/1\.1 408 /)
})

t.test('a client that keeps its side open after an error, and sends on, is disconnected', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
  // A write to the connection that the service has closed.
  socket.on('error', () => {})
  const closed = new Promise((resolve) => socket.once('close', resolve))
  socket.write('no HTTP\r\n\r\n')
  trickle(socket, 'x')
  t.match(String(await once(socket, 'data')), /^HTTP\/1\.1 400 /)
  await closed
})
