import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { Admission } from '../../../src/http/connections/admission.ts'
import { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { isError } from '../../support/error-shape.ts'
import { until } from '../../support/eventually.ts'
import { callerOf } from '../../support/http.ts'
import { listen } from '../../support/listen.ts'
import { portOf, startProgram } from '../../support/program.ts'
import { openRaw, parseResponse, type RawConnection, sendRaw } from '../../support/raw.ts'

const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`
// Answered with 404, without the database.
const nothing = list.replace('/inventory', '/nothing')
const lastNothing = nothing.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')

t.test('lets new callers in while hundreds of others keep it busy', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: apiKey, PORT: '0' },
  })
  const port = await portOf(server)
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

t.test('refuses what has waited for too long, and then serves as before', async (t) => {
  const database = await testDatabase(t)
  const { port, send } = await startApp(t, database.url, {
    app: {
      findApiKey: () => {
        // A slow processor: 64 requests take longer than any may wait.
        for (const start = performance.now(); performance.now() - start < 20; );
        return { name: 'slow' }
      },
    },
  })
  const clients = await openAccepted(port, 200)
  for (const { socket } of clients) socket.write(lastNothing)
  const answers = (await Promise.all(clients.map(({ received }) => received)))
    .map((received) => received.slice(received.lastIndexOf('HTTP/1.1 ')))
    .map(parseResponse)
  t.equal(answers[0]?.status, 404)
  const refused = answers.filter(({ status }) => status !== 404)
  t.ok(refused.length > 0)
  for (const { headers, ...answer } of refused) {
    isError(t, { ...answer, contentType: headers.get('content-type') }, 503, 'service_unavailable')
    t.equal(headers.get('retry-after'), '1')
  }
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

// Refusing takes as long as serving: once 500 clients are waiting, 2 seconds or 20. In the latter case, the requests that start
// in one iteration of the event loop take longer than any may wait.
for (const milliseconds of [4, 40]) {
  t.test(`serves new requests where refusing each of 500 takes ${milliseconds} ms`, async (t) => {
    const advance = interceptClock(t)
    const { port } = await startScheduled(t, () => advance(milliseconds))
    const statuses: string[] = []
    const [few, many] = [10, 500]
    const clients = await openAccepted(port, many)
    for (const { socket } of clients) {
      socket.on('data', (chunk: Buffer) => {
        statuses.push(chunk.toString('latin1', 9, 12))
        socket.write(list)
      })
      socket.write(list)
    }
    await until('refusals', () => statuses.filter((status) => status === '503').length >= many / 2)
    statuses.length = 0
    await until('as many answers', () => statuses.length >= many)
    const served = statuses.filter((status) => status === '200').length
    t.ok(served >= many / 4, `${served} of ${statuses.length} are served`)
    for (const { socket } of clients.slice(few)) socket.destroy()
    statuses.length = 0
    await until(
      'all to be served',
      () => statuses.slice(-100).filter((status) => status === '200').length >= 100,
    )
    for (const { socket } of clients) socket.destroy()
  })
}

t.test(
  'answers the oldest requests and serves the newest while health checks take all that they may',
  async (t) => {
    const advance = interceptClock(t)
    const { port } = await startScheduled(t, () => advance(3))
    const repeat = ({ socket }: RawConnection, request: string, onAnswer = (_: Buffer): void => {}): void => {
      socket.on('data', (chunk: Buffer) => {
        onAnswer(chunk)
        socket.write(request)
      })
      socket.write(request)
    }
    const checks = await openAccepted(port, 100)
    const clients = await openAccepted(port, 500)
    for (const check of checks) repeat(check, 'GET /urgent HTTP/1.1\r\nHost: x\r\n\r\n')
    let answers = 0
    let served = 0
    const answered = new Set<RawConnection>()
    for (const client of clients) {
      repeat(client, list, (chunk) => {
        // By then, more are waiting than can start in time.
        if (++answers <= clients.length) return
        answered.add(client)
        if (chunk.includes('HTTP/1.1 200')) served++
      })
    }
    const most = 8 * clients.length
    await until('the answers', () => answered.size === clients.length || answers > most)
    t.equal(answered.size, clients.length, `each has an answer after ${answers} of at most ${most}`)
    t.ok(served >= answers / 8, `${served} of them are served`)
    for (const { socket } of [...checks, ...clients]) socket.destroy()
  },
)

t.test('starts few requests of a connection at a time, and serves connections round-robin', async (t) => {
  const { port, statistics, starts } = await startScheduled(t)
  const waiting = await openRaw(port)
  waiting.socket.write('GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the request to start', () => starts.length >= 1)
  const pipelined = (name: string, count: number): string =>
    Array.from({ length: count }, (_, index) => `GET /${name}${index} HTTP/1.1\r\nHost: x\r\n\r\n`).join('')
  // Far more than Node reads at once.
  const many = 5000
  waiting.socket.write(pipelined('next', many))
  const others = await Promise.all(['a', 'b'].map(async (name) => ({ name, ...(await openRaw(port)) })))
  for (const { name, socket } of others) socket.write(pipelined(name, 200))
  const has = (name: string): number => starts.filter(({ url }) => url.startsWith(`/${name}`)).length
  await until('all requests of the others', () => has('a') + has('b') >= 400)
  t.equal(has('next'), 31, 'at most 32 requests of a connection are in flight')
  t.ok(statistics.queued <= 65_536 / '/next0'.length, `${statistics.queued} are queued`)
  t.ok((starts[0]?.socket.bytesRead ?? 0) <= 2 * 65_536, 'the connection with a long queue is not read')

  const order = starts.filter(({ url }) => /^\/[ab]\d/.test(url)).map(({ url }) => url[1])
  const first = Math.max(order.indexOf('a'), order.indexOf('b'))
  const last = Math.min(order.lastIndexOf('a'), order.lastIndexOf('b'))
  for (let at = first; at < last; at++) {
    if (order[at] !== order[at + 1]) continue
    t.fail(`two in a row at ${at}: ${order.slice(first, last).join('')}`)
    break
  }

  starts[0]?.response.end()
  let received = ''
  waiting.socket.on('data', (chunk) => (received += chunk))
  await until('all requests to start', () => has('next') >= many)
  await until('the last answer', () => received.includes(`/next${many - 1}\n`))
  t.strictSame(
    Array.from(received.matchAll(/\/next(\d+)\n/g), ([, index]) => Number(index)),
    Array.from({ length: many }, (_, index) => index),
    'all are answered, in order',
  )
  waiting.socket.destroy()
  for (const { socket } of others) socket.destroy()
})

t.test('a request waits for those of other methods before it on its connection', async (t) => {
  const { port, starts } = await startScheduled(t)
  const { socket } = await openRaw(port)
  const request = (method: string): string => `${method} /wait HTTP/1.1\r\nHost: x\r\n\r\n`
  socket.write(['PATCH', 'PATCH', 'GET', 'GET', 'PATCH'].map(request).join(''))
  for (const methods of [['PATCH', 'PATCH'], ['GET', 'GET'], ['PATCH']]) {
    await until(`${methods.join()} to start`, () => starts.length >= methods.length)
    // Whatever else was sent would have started by the time that another connection is answered.
    await sendRaw(port, 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    const started = starts.splice(0).filter(({ url }) => url === '/wait')
    t.strictSame(
      started.map(({ response }) => response.req.method),
      methods,
    )
    for (const { response } of started.reverse()) response.end()
  }
  socket.destroy()
})

t.test('a response that waits behind others closes with its connection', async (t) => {
  const { port, starts, statistics } = await startScheduled(t)
  const { socket } = await openRaw(port)
  socket.write('GET /wait HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3))
  await until('the requests to start', () => starts.length >= 3)
  const closed = Promise.all(starts.map(({ response }) => once(response, 'close')))
  socket.resetAndDestroy()
  await closed
  t.equal(statistics.inFlight, 0)
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
  // All are read in few event-loop iterations, of which each starts no more than 64.
  t.ok(last < 900, `the last started as number ${last}`)
  for (const { socket } of [...clients, ...checks]) socket.destroy()
})

/** Floods of requests that take 64 MB before all of them are queued: how many connections send how many of which request. */
const floodsBeyondBound = {
  'with few headers': { connections: 60, requests: 600, request: nothing, least: 18_000, most: 22_000 },
  'with many headers': {
    connections: 80,
    requests: 95,
    request: nothing.replace('\r\n\r\n', `\r\n${'x: 1\r\n'.repeat(100)}\r\n`),
    least: 4000,
    most: 5500,
  },
}

for (const [name, flood] of Object.entries(floodsBeyondBound)) {
  t.test(
    `beyond the bound on queued requests ${name}, the connection that has most of them is closed`,
    async (t) => {
      const database = await testDatabase(t)
      const statistics = new RequestStatistics()
      let finishLookups = (): void => {}
      const lookedUp = new Promise<void>((resolve) => (finishLookups = resolve))
      const { port } = await startApp(t, database.url, {
        app: {
          requestStatistics: statistics,
          findApiKey: async () => {
            await lookedUp
            return { name: 'tests' }
          },
        },
      })
      const polite = await openRaw(port)
      polite.socket.write(nothing.repeat(4) + lastNothing)
      let most = 0
      const watch = setInterval(() => (most = Math.max(most, statistics.queued)), 1)
      const floods = await Promise.all(Array.from({ length: flood.connections }, () => openRaw(port)))
      const closed = new Promise<string>((resolve) => {
        for (const { received } of floods) received.then(resolve)
      })
      for (const { socket } of floods) socket.write(flood.request.repeat(flood.requests))
      await until(`${flood.least} queued requests`, () => statistics.queued >= flood.least)
      finishLookups()
      t.match(await closed, /HTTP\/1\.1 503 .*connection: close.*on this connection/is)
      const answers = (await polite.received).split(/(?=HTTP\/1\.1 )/).map(parseResponse)
      t.strictSame(
        answers.map(({ status }) => status),
        [404, 404, 404, 404, 404],
        'a polite client does not notice',
      )
      clearInterval(watch)
      t.ok(most <= flood.most, `at most ${most} were queued`)
      for (const { socket } of floods) socket.destroy()
      await until('the end of all requests', () => statistics.queued === 0 && statistics.inFlight === 0)
    },
  )
}

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

/**
 * Replaces the clock of this process with one that only the returned function advances, by milliseconds: how much a machine
 * does in that time depends on the test alone.
 */
function interceptClock(t: Test): (ms: number) => void {
  let now = performance.now()
  t.intercept(performance, 'now', { value: () => now })
  return (ms) => {
    now += ms
  }
}

/** A request that the scheduled server has started. */
interface Start {
  readonly url: string
  readonly socket: Socket
  readonly response: ServerResponse
}

/**
 * Starts a server whose requests are scheduled. It answers all but `/wait` with their path, after `work` has run; `/urgent` is
 * urgent.
 */
async function startScheduled(
  t: Test,
  work = (): void => {},
): Promise<{ port: number; statistics: RequestStatistics; starts: Start[] }> {
  const statistics = new RequestStatistics()
  const starts: Start[] = []
  // No client is idle: on a busy machine, more than Node's 5 seconds can pass before its next request is read.
  const server = createServer({ requireHostHeader: false, keepAliveTimeout: 0 })
  const admission = new Admission({
    statistics,
    isUrgent: ({ url }) => url === '/urgent',
    handler: ({ url = '', socket }, response) => {
      starts.push({ url, socket, response })
      work()
      if (admission.slotOf(response)?.refusal !== undefined) response.statusCode = 503
      if (url !== '/wait') response.end(`${url}\n`)
    },
  })
  admission.schedule(server)
  return { port: await listen(t, server), statistics, starts }
}
