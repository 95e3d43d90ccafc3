import { EventEmitter, once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Connections } from '../../../src/http/connections/connections.ts'
import { GracefulStop } from '../../../src/http/connections/graceful-stop.ts'
import { listen } from '../../support/listen.ts'
import { openRaw, sendRaw } from '../../support/raw.ts'

t.test('where very many are open, a new one ends the one that has been idle for longest', async (t) => {
  const server = createServer()
  new Connections(4).watch(server)
  const waiting: ServerResponse[] = []
  server.on('request', ({ url }, response) => {
    if (url === '/wait') waiting.push(response)
    else response.end('done')
  })
  const port = await listen(t, server)
  const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

  const reset = await openRaw(port)
  reset.socket.write(get('/wait'))
  await once(server, 'request')
  reset.socket.resetAndDestroy()
  for (const response of waiting.splice(0)) await once(response, 'close')

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

  await openRaw(port)
  t.equal(await halfSent.received, '')
  await openRaw(port)
  t.equal(await silent.received, '')
  t.match(await sendRaw(port, get('/').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')), /done$/)
  t.match(await used.received, /done$/)
  for (const response of waiting) response.end('done')
  await once(busy.socket, 'data')
  t.notOk(busy.socket.destroyed, 'a connection with a pending answer stays')
})

t.test(
  'a client that takes nothing of a response is cut off, one that waits for the service is not',
  async (t) => {
    const server = createServer()
    new Connections().watch(server)
    server.setTimeout(100)
    // Not on the server: a listener there would keep Node from ending any connection.
    const timeouts = new EventEmitter()
    server.on('connection', (socket) => socket.on('timeout', () => timeouts.emit('timeout')))
    const waiting: ServerResponse[] = []
    server.on('request', ({ url }, response) => {
      if (url === '/wait') waiting.push(response)
      else response.end(Buffer.alloc(20_000_000))
    })
    const port = await listen(t, server)
    const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`

    const patient = await openRaw(port)
    patient.socket.write(get('/wait'))
    await once(timeouts, 'timeout')
    for (const response of waiting) response.end('done')
    t.match(await patient.received, /done$/)

    const late = await openRaw(port)
    late.socket.write(get('/wait'))
    await once(timeouts, 'timeout')
    late.socket.pause()
    waiting.at(-1)?.end(Buffer.alloc(20_000_000))
    const stalled = await openRaw(port)
    stalled.socket.pause()
    stalled.socket.write(get('/'))
    const connectionsOpen = (): Promise<number> =>
      new Promise((resolve) => server.getConnections((_error, count) => resolve(count)))
    for (let tries = 0; (await connectionsOpen()) > 0; tries++) {
      if (tries === 500) throw new Error('the clients that read nothing are not cut off')
      await setTimeout(20)
    }
    for (const { socket, received } of [stalled, late]) {
      socket.resume()
      t.ok((await received).length < 20_000_000, 'the response is incomplete')
    }
  },
)

/** A server of the test's own that is stopped by the test. */
async function startServer(t: Test): Promise<{ server: Server; port: number; gracefulStop: GracefulStop }> {
  const server = createServer()
  const connections = new Connections()
  connections.watch(server)
  const gracefulStop = new GracefulStop(connections)
  const port = await listen(t, server)
  return { server, port, gracefulStop }
}

const closing = 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'

t.test(
  'connections that wait to be accepted when a server stops are served, once the port is closed',
  async (t) => {
    const { server, port, gracefulStop } = await startServer(t)
    server.on('request', (_request, response) =>
      gracefulStop.startRequest(() =>
        response.end(server.listening ? 'begun while the port was open' : 'done'),
      ),
    )
    const stopped = gracefulStop.stop(server)
    // The server has no connection yet, so it would close the port at once.
    const sockets = Array.from({ length: 50 }, () => connect({ host: '127.0.0.1', port }))
    const answers = sockets.map(async (socket) => {
      socket.write(closing)
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
  },
)

t.test('a client that is slow to read its response when a server stops gets all of it', async (t) => {
  const { server, port, gracefulStop } = await startServer(t)
  const body = Buffer.alloc(20_000_000, 'x')
  server.on('request', (_request, response) => response.end(body))
  const { socket, received } = await openRaw(port)
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await once(socket, 'data')
  socket.pause()
  const stopped = gracefulStop.stop(server)
  for (let tries = 0; server.listening; tries++) {
    if (tries === 500) throw new Error('the port is not closed')
    await setTimeout(20)
  }
  socket.resume()
  t.ok((await received).length > body.length, 'the response is whole')
  await stopped
})
