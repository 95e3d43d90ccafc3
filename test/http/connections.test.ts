import { EventEmitter, once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { Connections } from '../../src/http/connections.ts'
import { openRaw, sendRaw } from '../support/raw.ts'

t.test('where very many are open, a new one ends the one that has been idle for longest', async (t) => {
  const server = createServer()
  new Connections(4).watch(server)
  const waiting: ServerResponse[] = []
  server.on('request', ({ url }, response) => {
    if (url === '/wait') waiting.push(response)
    else response.end('done')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

  const busy = await openRaw(port)
  busy.socket.write(get('/wait'))
  await once(server, 'request')
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
  t.notOk(busy.socket.destroyed, 'one that is owed an answer stays')
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
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
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
