import type { Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { callerOf } from '../support/http.ts'
import { portOf, startProgram } from '../support/program.ts'
import { openRaw, parseResponse } from '../support/raw.ts'

const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`
// Answered with 404, without the database.
const nothing = list.replace('/inventory', '/nothing')
const lastNothing = nothing.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')

t.test('lets new callers in while a thousand others keep it busy', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: apiKey, PORT: '0' },
  })
  const port = await portOf(server)
  let answers = 0
  const busy = await Promise.all(
    Array.from({ length: 1000 }, async () => {
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
  while (answers < 5000) await setTimeout(10)
  const before = answers
  const newcomers = await Promise.all(Array.from({ length: 40 }, () => callerOf(port)('GET', '/livez')))
  t.ok(newcomers.every(({ status }) => status === 200))
  // One newcomer for each turn in which all thousand are served would make it 40,000.
  t.ok(answers - before < 10_000, `${answers - before} answers to others came in between`)
})

t.test('turns away who has waited for too long, and then serves as before', async (t) => {
  const database = await testDatabase(t)
  const { port, send } = await startApp(t, database.url, {
    findApiKey: () => {
      // A processor that is slow: 64 requests take longer than any may wait.
      for (const start = performance.now(); performance.now() - start < 20; );
      return { name: 'slow' }
    },
  })
  const { socket, received } = await openRaw(port)
  socket.write(nothing.repeat(150) + lastNothing)
  const answers = (await received).split(/(?=HTTP\/1\.1 )/).map(parseResponse)
  t.equal(answers.length, 151)
  t.equal(answers[0]?.status, 404)
  const refused = answers.filter(({ status }) => status !== 404)
  t.ok(refused.length > 0)
  for (const { headers, ...answer } of refused) {
    isError(t, { ...answer, contentType: headers.get('content-type') }, 503, 'service_unavailable')
    t.equal(headers.get('retry-after'), '1')
  }
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('turns callers away at once when too many wait, whether or not they stay', async (t) => {
  const database = await testDatabase(t)
  let asked = 0
  let tell = (): void => {}
  let told = Promise.resolve()
  const { port, send } = await startApp(t, database.url, {
    // Nobody can tell yet whose key it is.
    findApiKey: async () => {
      asked++
      await told
      return { name: 'tests' }
    },
  })
  for (let round = 1; round <= 2; round++) {
    asked = 0
    told = new Promise((resolve) => (tell = resolve))
    const sockets: Socket[] = []
    while (asked < 10_000) {
      const { socket } = await openRaw(port)
      sockets.push(socket)
      const enough = asked + 500
      socket.write(nothing.repeat(500))
      while (asked < enough) await setTimeout(5)
    }
    for (const socket of sockets) socket.destroy()
    const { text, ...refused } = await send('GET', '/v1/nothing')
    isError(
      t,
      { ...refused, contentType: refused.headers['content-type'], body: text },
      503,
      'service_unavailable',
    )
    t.match(text, /Too many requests are under way/)
    t.equal(refused.headers['retry-after'], '1')
    t.equal(asked, 10_000, 'nothing was done for the one that was turned away')
    t.equal((await send('GET', '/livez')).status, 200)
    tell()
    while ((await send('GET', '/v1/nothing')).status !== 404) await setTimeout(5)
  }
})
