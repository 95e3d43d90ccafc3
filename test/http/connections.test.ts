import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
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
