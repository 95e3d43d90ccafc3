import type { ServerResponse } from 'node:http'
import t from 'tap'
import { startService } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { until } from '../../support/eventually.ts'
import { callerOf } from '../../support/http.ts'
import { startHttpServer } from '../../support/http-server.ts'
import { close, host, listRequest, updateRequest } from '../../support/messages.ts'
import { openRaw, responsesIn, sendRaw } from '../../support/raw.ts'
import { startServer } from '../../support/running-server.ts'

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
  const { port, database, send } = await startService(t, [['1', 0, 'available']])
  const updates = Array.from({ length: 2000 }, (_, index) => updateRequest(index + 1)).join('')
  const answers = responsesIn(await sendRaw(port, updates))
  t.ok(answers.length > 1 && answers.length < 100, `${answers.length} answers`)
  t.strictSame(
    answers.map(({ status, body, headers }) => [
      status,
      JSON.parse(body).quantity,
      headers.get('connection'),
    ]),
    answers.map((_, index) => [200, index + 1, index + 1 < answers.length ? 'keep-alive' : 'close']),
  )
  t.strictSame(
    await database.query('SELECT quantity FROM inventory'),
    [{ quantity: String(answers.length) }],
    'what was not answered was not done',
  )
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('a client that pipelines a few requests at a time keeps its connection', async (t) => {
  const { port } = await startService(t, [['1', 0, 'available']])
  const { socket } = await openRaw(port)
  let text = ''
  socket.on('data', (chunk) => (text += chunk))
  for (let rounds = 1; rounds <= 20; rounds++) {
    socket.write(listRequest().repeat(8))
    await until('the answers', () => responsesIn(text).length === 8 * rounds && text.endsWith(']'))
  }
  t.ok(responsesIn(text).every(({ headers }) => headers.get('connection') === 'keep-alive'))
  socket.destroy()
})

t.test('of a burst, not much more is parsed than is answered', async (t) => {
  let parsed = 0
  const { port, server } = await startHttpServer(t, (_request, response) => response.end('done'))
  server.on('request', () => parsed++)
  const answers = responsesIn(await sendRaw(port, get('/').repeat(1000)))
  t.equal(parsed, answers.length)
})

t.test('new connections are served while hundreds of others keep the service busy', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startServer(t, { DATABASE_URL: database.url })
  let answers = 0
  const list = listRequest()
  const busy = await Promise.all(
    Array.from({ length: 400 }, async () => {
      const { socket } = await openRaw(port)
      // Each has one request under way at all times; an answer of one entry comes in one piece.
      socket.on('data', () => {
        answers++
        socket.write(list)
      })
      socket.write(list)
      return socket
    }),
  )
  t.teardown(() => {
    for (const socket of busy) socket.destroy()
  })
  await until('2000 answers', () => answers >= 2000)
  const before = answers
  const others = await Promise.all(Array.from({ length: 40 }, () => callerOf(port)('GET', '/livez')))
  t.ok(others.every(({ status }) => status === 200))
  // Accepting one connection in each event-loop iteration that serves all 400 would make it 16,000.
  t.ok(answers - before < 4000, `${answers - before} answers to others came in between`)
})
