import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import t from 'tap'
import { startService } from '../../support/app.ts'
import { until } from '../../support/eventually.ts'
import { startHttpServer } from '../../support/http-server.ts'
import { close, host, updateRequest } from '../../support/messages.ts'
import { openRaw, responsesIn, sendRaw, statusesIn } from '../../support/raw.ts'

const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\n${host}${headers}\r\n`

t.test('pipelined requests start one after the other, and end with their connection', async (t) => {
  const started: string[] = []
  const waiting: ServerResponse[] = []
  let inFlight = 0
  const { port } = await startHttpServer(t, ({ url = '' }, response) => {
    inFlight++
    response.once('close', () => inFlight--)
    started.push(url)
    if (url.startsWith('/wait')) waiting.push(response)
    else response.end(url)
  })
  const { socket } = await openRaw(port)
  socket.write(get('/wait/1') + get('/a') + get('/wait/2') + get('/b'))
  await until('the first request', () => started.length > 0)
  t.match(await sendRaw(port, get('/other', close)), /\/other$/)
  t.strictSame(started, ['/wait/1', '/other'])
  waiting.shift()?.end('/wait/1')
  await until('the third request', () => started.includes('/wait/2'))
  t.equal(inFlight, 1)
  socket.resetAndDestroy()
  await until('the end of the connection', () => inFlight === 0)
  t.strictSame(started, ['/wait/1', '/other', '/a', '/wait/2'])
})

t.test('a burst is answered in order until the connection closes, as its last response says', async (t) => {
  const { port, database, send } = await startService(t, ['1,0,available'])
  const updates = Array.from({ length: 2000 }, (_, index) => updateRequest(index + 1)).join('')
  const answers = responsesIn(await sendRaw(port, updates))
  t.ok(answers.length > 1 && answers.length < 100, `${answers.length} answers`)
  for (const [index, { status, text, headers }] of answers.entries()) {
    t.strictSame([status, JSON.parse(text).quantity], [200, index + 1])
    t.equal(headers.connection, index + 1 < answers.length ? 'keep-alive' : 'close')
  }
  const stored = [{ quantity: String(answers.length) }]
  t.strictSame(await database.query('SELECT quantity FROM inventory'), stored, 'no more than was answered')
  t.equal((await send('GET', '/v1/inventory')).status, 200)

  const updates17 = updateRequest(1).repeat(17)
  const { socket, received } = await openRaw(port)
  socket.write(updates17.slice(0, -4))
  await once(socket, 'data')
  socket.write(updates17.slice(-4))
  // The last of them has not arrived with the others.
  const connections = responsesIn(await received).map(({ headers }) => headers.connection)
  t.strictSame(connections, [...Array(15).fill('keep-alive'), 'close'])

  for (const count of [16, 17]) {
    const tunnel = `CONNECT inventory.test:1 HTTP/1.1\r\n${host}\r\n`
    const received = await sendRaw(port, updateRequest(1).repeat(count) + tunnel)
    const statuses = [...Array(16).fill(200), count === 16 ? 405 : 200]
    t.strictSame(statusesIn(received), statuses, `${count} updates before a CONNECT`)
  }
})

t.test('of a burst, not much more is parsed than is answered', async (t) => {
  let parsed = 0
  const { port, server } = await startHttpServer(t, (_request, response) => response.end('done'))
  server.on('request', () => parsed++)
  const answers = responsesIn(await sendRaw(port, get('/').repeat(1000)))
  t.equal(parsed, answers.length)
})
