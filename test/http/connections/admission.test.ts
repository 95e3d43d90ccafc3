import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import type { HttpLimits } from '../../../src/http/connections/http-server.ts'
import type { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { until } from '../../support/eventually.ts'
import { callerOf } from '../../support/http.ts'
import { startHttpServer } from '../../support/http-server.ts'
import { openRaw, type RawConnection, sendRaw } from '../../support/raw.ts'
import { startServer } from '../../support/running-server.ts'

const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`
// Answered with 404, without the database.
const nothing = list.replace('/inventory', '/nothing')
const lastNothing = nothing.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')

t.test('new connections are served while hundreds of others keep the service busy', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startServer(t, { DATABASE_URL: database.url })
  let answers = 0
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

t.test('requests that have to wait are served, however long it takes', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url, {
    app: {
      findApiKey: () => {
        // A slow processor: 100 requests take two seconds.
        for (const start = performance.now(); performance.now() - start < 20; );
        return { name: 'slow' }
      },
    },
  })
  const clients = await openAccepted(port, 100)
  for (const { socket } of clients) socket.write(lastNothing)
  for (const received of await Promise.all(clients.map((client) => client.received))) {
    t.match(received.slice(received.lastIndexOf('HTTP/1.1 ')), /^HTTP\/1.1 404 /)
  }
})

t.test('health checks without end take no more than half of what is served', async (t) => {
  const { port, starts } = await startScheduled(t)
  const checks = await openAccepted(port, 100)
  const clients = await openAccepted(port, 500)
  const check = 'GET /urgent HTTP/1.1\r\nHost: x\r\n\r\n'
  for (const { socket } of checks) {
    socket.on('data', () => socket.write(check))
    socket.write(check)
  }
  for (const { socket } of clients) socket.write('GET /busy HTTP/1.1\r\nHost: x\r\n\r\n')
  const urls = (): string[] => starts.map(({ url }) => url)
  const isBusy = (url: string): boolean => url === '/busy'
  await until('all other requests to start', () => urls().filter(isBusy).length >= clients.length)
  const between = urls().slice(urls().findIndex(isBusy), urls().findLastIndex(isBusy)).length - clients.length
  t.ok(between <= 1.2 * clients.length, `${between} health checks started in between`)
  for (const { socket } of [...checks, ...clients]) socket.destroy()
})

t.test(
  'starts one request of a connection at a time, in order, and serves connections round-robin',
  async (t) => {
    const { port, starts } = await startScheduled(t)
    const pipelined = (name: string, count: number): string =>
      Array.from({ length: count }, (_, index) => `GET /${name}${index} HTTP/1.1\r\nHost: x\r\n\r\n`).join('')
    const [waiting] = await openAccepted(port, 1)
    waiting?.socket.write(`GET /wait HTTP/1.1\r\nHost: x\r\n\r\n${pipelined('next', 60)}`)
    const has = (name: string): number => starts.filter(({ url }) => url.startsWith(`/${name}`)).length
    await until('the first request to start', () => has('wait') > 0)
    const others = await openAccepted(port, 2)
    for (const [index, { socket }] of others.entries()) socket.write(pipelined('ab'[index] ?? '', 60))
    await until('all requests of the others', () => has('a') + has('b') >= 120)
    t.equal(has('next'), 0, 'no other request of the first connection has started')

    const order = starts.filter(({ url }) => /^\/[ab]\d/.test(url)).map(({ url }) => url[1])
    const first = Math.max(order.indexOf('a'), order.indexOf('b'))
    const last = Math.min(order.lastIndexOf('a'), order.lastIndexOf('b'))
    t.notMatch(order.slice(first, last).join(''), /aaaa|bbbb/, 'no connection starts many in a row')

    let received = ''
    waiting?.socket.on('data', (chunk) => (received += chunk))
    starts.find(({ url }) => url === '/wait')?.response.end()
    await until('the last answer', () => received.includes('/next59\n'))
    t.strictSame(
      Array.from(received.matchAll(/\/next(\d+)\n/g), ([, index]) => Number(index)),
      Array.from({ length: 60 }, (_, index) => index),
      'all are answered, in order',
    )
    for (const { socket } of [...others, ...(waiting ? [waiting] : [])]) socket.destroy()
  },
)

t.test('a connection with many waiting requests is not read, and all are answered in order', async (t) => {
  const { port, starts, statistics } = await startScheduled(t)
  const { socket } = await openRaw(port)
  const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`
  // Far more than Node reads at once.
  const many = 5000
  socket.write(
    request('/wait') + Array.from({ length: many }, (_, index) => request(`/next${index}`)).join(''),
  )
  await until('the first request to start', () => starts.length > 0)
  t.match(await sendRaw(port, request('/').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')), /200 OK/)
  t.ok((starts[0]?.socket.bytesRead ?? 0) <= 2 * 65_536)
  t.ok(statistics.queued <= 65_536 / '/next0'.length, `${statistics.queued} are queued`)
  let received = ''
  socket.on('data', (chunk) => (received += chunk))
  starts[0]?.response.end('/wait\n')
  await until('the last answer', () => received.includes(`/next${many - 1}\n`))
  t.strictSame(
    Array.from(received.matchAll(/\/next(\d+)\n/g), ([, index]) => Number(index)),
    Array.from({ length: many }, (_, index) => index),
  )
  socket.destroy()
})

t.test(
  'beyond the bound on pipelined requests of all connections, those that pipeline are closed',
  async (t) => {
    const { port, starts, statistics } = await startScheduled(t, { maxPipelined: 10 })
    const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`
    const floods = await openAccepted(port, 5)
    starts.length = 0
    for (const { socket } of floods) socket.write(request('/wait') + request('/next').repeat(4))
    await until('the requests to start', () => starts.length >= 5)
    const [polite] = await openAccepted(port, 1)
    polite?.socket.write(request('/polite'))
    t.match(String((await once(polite?.socket ?? process, 'data'))[0]), /200 OK[\s\S]*\/polite/)
    t.ok(statistics.queued <= 10)
    const waiting = starts.filter(({ url }) => url === '/wait')
    for (const { response } of waiting) response.end('/wait\n')
    await until('the end of all requests', () => statistics.queued === 0 && statistics.inFlight === 0)
    polite?.socket.destroy()
    for (const { socket } of floods.slice(0, 2)) socket.destroy()
    const refused = await Promise.all(floods.slice(2).map(({ received }) => received))
    t.ok(refused.every((text) => text.includes('HTTP/1.1 503 ')))
  },
)

t.test('requests that wait behind another one end with their connection', async (t) => {
  const { port, starts, statistics } = await startScheduled(t)
  const { socket } = await openRaw(port)
  socket.write('GET /wait HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3))
  await until('the requests to arrive', () => starts.length === 1 && statistics.queued === 2)
  socket.resetAndDestroy()
  await until('the end of the requests', () => statistics.inFlight === 0 && statistics.queued === 0)
  t.equal(starts.length, 1)
})

t.test('a health check does not wait for the requests of others', async (t) => {
  const { port, starts } = await startScheduled(t)
  const clients = await openAccepted(port, 1000)
  const checks = await openAccepted(port, 10)
  starts.length = 0
  for (const { socket } of clients) socket.write('GET /busy HTTP/1.1\r\nHost: x\r\n\r\n')
  for (const { socket } of checks) socket.write('GET /urgent HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('all requests to start', () => starts.length >= 1010)
  const last = starts.findLastIndex(({ url }) => url === '/urgent')
  // All are read in few event-loop iterations, of which each starts no more than 16.
  t.ok(last < 900, `the last started as number ${last}`)
  for (const { socket } of [...clients, ...checks]) socket.destroy()
})

/** Opens connections that the server has accepted, as their first answer shows. */
async function openAccepted(port: number, count: number): Promise<RawConnection[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const connection = await openRaw(port)
      connection.socket.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n')
      await once(connection.socket, 'data')
      return connection
    }),
  )
}

/** A request that the scheduled server has started. */
interface Start {
  readonly url: string
  readonly socket: Socket
  readonly response: ServerResponse
}

/** Starts a server. It answers all but `/wait` with their path; `/urgent` is urgent. */
async function startScheduled(
  t: Test,
  limits: Partial<HttpLimits> = {},
): Promise<{ port: number; statistics: RequestStatistics; starts: Start[] }> {
  const starts: Start[] = []
  const { port, statistics } = await startHttpServer(
    t,
    ({ url = '', socket }, response) => {
      starts.push({ url, socket, response })
      if (url !== '/wait') response.end(`${url}\n`)
    },
    limits,
  )
  return { port, statistics, starts }
}
