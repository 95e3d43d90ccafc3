import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ConnectionLimits } from '../../../src/http/connections/guard.ts'
import { until } from '../../support/eventually.ts'
import { startHttpServer } from '../../support/http-server.ts'
import { openRaw, type RawConnection, sendRaw } from '../../support/raw.ts'

const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`

t.test('beyond the limit of connections, none is cut off before or while it sends', async (t) => {
  const maxOpen = 50
  const limits = { maxOpen, minIdleMs: 60_000 }
  const { port } = await startHttpServer(t, (_request, response) => response.end('done'), limits)
  let cutOff = 0
  let answers = 0
  let hasEnded = false
  /** A client that sends requests all the time, and connects again when a response says that its connection closes. */
  const sendOn = async (): Promise<void> => {
    while (!hasEnded) {
      const { socket, received } = await openRaw(port)
      let last = ''
      socket.on('data', (chunk) => {
        last = String(chunk)
        answers++
        if (hasEnded) socket.destroy()
        else if (!/connection: close/i.test(last)) socket.write(get('/'))
      })
      socket.write(get('/'))
      await received
      if (!hasEnded && !/connection: close/i.test(last)) cutOff++
    }
  }
  const clients = Promise.all(Array.from({ length: maxOpen + 10 }, sendOn))
  await until('answers to all', () => answers > 1000)
  const slow = await openRaw(port)
  for (let count = 0; count < 100; count++)
    t.match(await sendRaw(port, get('/', 'Connection: close\r\n')), /done$/)
  // Connected before the others, and slower than all of them.
  await setTimeout(1200)
  slow.socket.write(get('/', 'Connection: close\r\n'))
  t.match(await slow.received, /done$/)
  hasEnded = true
  await clients
  t.equal(cutOff, 0, `${answers} answers`)
})

t.test('beyond the limit of connections, those that were idle for longest are closed', async (t) => {
  const { port } = await startHttpServer(
    t,
    ({ url }, response) => {
      if (url !== '/wait') response.end('done')
    },
    { maxOpen: 4, minIdleMs: 1000 },
  )
  const busy = await openRaw(port)
  busy.socket.write(get('/') + get('/wait'))
  await once(busy.socket, 'data')
  const used = await openRaw(port)
  const halfSent = await openRaw(port)
  halfSent.socket.write('GET / HTTP/1.1\r\nHo')
  const silent = await openRaw(port)
  // It has been idle for less long than the two that came after it.
  used.socket.write(get('/'))
  await once(used.socket, 'data')

  const others = [await openRaw(port), await openRaw(port)]
  t.equal(await halfSent.received, '')
  t.equal(await silent.received, '')
  for (const { socket, received } of [...others, used]) {
    socket.write(get('/', 'Connection: close\r\n'))
    t.match(await received, /done$/)
  }
  t.notOk(busy.socket.readableEnded || busy.socket.destroyed, 'a connection with a pending answer stays')
  busy.socket.destroy()
})

/** Starts a server with a large response, which is not read, and one at `/wait` that waits. */
async function startUnread(t: Test, limits: Partial<ConnectionLimits>) {
  const responses: ServerResponse[] = []
  const { port } = await startHttpServer(
    t,
    ({ url }, response) => {
      responses.push(response)
      if (url !== '/wait') response.end(Buffer.alloc(20_000_000))
    },
    limits,
  )
  /** Sends a request, and returns its connection, which is not read, and its response. */
  const open = async (path: string): Promise<RawConnection & { response: ServerResponse | undefined }> => {
    const before = responses.length
    const connection = await openRaw(port)
    t.teardown(() => connection.socket.destroy())
    connection.socket.pause()
    connection.socket.write(get(path))
    await until('the response', () => responses.length > before)
    return { ...connection, response: responses[before] }
  }
  return { open }
}

t.test('a client that reads nothing is disconnected, one that waits for the service is not', async (t) => {
  const { open } = await startUnread(t, { stallMs: 1500 })
  const patient = await open('/wait')
  const stalled = [await open('/'), await open('/')]
  const timer = setInterval(() => stalled[0]?.socket.write('\r\n'), 100)
  t.teardown(() => clearInterval(timer))
  await until('the end of both', () => stalled.every(({ response }) => response?.closed === true))
  for (const { socket, received } of stalled) {
    socket.resume()
    t.ok((await received).length < 20_000_000, 'the response is incomplete')
  }
  patient.response?.end('done')
  patient.socket.resume()
  t.match(String(await once(patient.socket, 'data')), /done$/)
})

t.test('at the limit of unread responses, the one without progress for longest is closed', async (t) => {
  const { open } = await startUnread(t, { maxStalled: 2 })
  const first = await open('/')
  // Longer than the interval of the checks.
  await setTimeout(500)
  const others = [await open('/'), await open('/')]
  await until('the first one to be closed', () => first.response?.closed === true)
  t.ok(others.every(({ response }) => response?.closed === false))
})

t.test('connections that wait to be accepted when a server stops are served', async (t) => {
  const { http, server, port } = await startHttpServer(t, (_request, response) => {
    response.end(server.listening ? 'begun while the port was open' : 'done')
  })
  const stopped = http.stop(server)
  // The server has no drain period, so it would close the port at once.
  const sockets = Array.from({ length: 10 }, () => connect({ host: '127.0.0.1', port }))
  const answers = sockets.map(async (socket) => {
    socket.write(get('/', 'Connection: close\r\n'))
    let text = ''
    for await (const chunk of socket) text += chunk
    return text
  })
  const outcomes = await Promise.allSettled(answers)
  await stopped
  t.ok(outcomes.some(({ status }) => status === 'fulfilled'))
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') t.match(outcome.value, /^HTTP\/1\.1 200 [\s\S]*done$/)
    else t.match(outcome.reason, { code: 'ECONNREFUSED' })
  }
})

t.test('a client that is slow to read its response when a server stops gets all of it', async (t) => {
  const body = Buffer.alloc(20_000_000, 'x')
  const { http, server, port } = await startHttpServer(t, (_request, response) => response.end(body))
  const { socket, received } = await openRaw(port)
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await once(socket, 'data')
  socket.pause()
  const stopped = http.stop(server)
  await until('the port to be closed', () => !server.listening)
  socket.resume()
  t.ok((await received).length > body.length, 'the response is whole')
  await stopped
})
