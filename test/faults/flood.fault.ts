import { readFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { apiKey } from '../support/app.ts'
import { entrancesOf } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { startServer } from '../support/running-server.ts'

/** Ten times as many connections as keep one process fully at work, or as many as this process may open. */
const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
const MANY = Math.min(5000, Number(/Max open files +(\d+)/.exec(limits)?.[1] ?? 1024) - 200)

/** Connections, and the requests that each of them pipelines at once. */
const floods = [
  [4, 5000],
  [8, 2500],
  [64, 200],
  [500, 20],
] as const
const keys = {
  'without a key': '',
  'with a wrong key': 'Authorization: Bearer wrong\r\n',
  'with a right key': `Authorization: Bearer ${apiKey}\r\n`,
}
const body = '{"quantity":1}'
const requests = {
  lists: (key: string) => `GET /v1/inventory HTTP/1.1\r\nHost: x\r\n${key}\r\n`,
  updates: (key: string) =>
    `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${key}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
}

interface Case {
  readonly name: string
  readonly connections: number
  readonly pipelined: number
  readonly request: string
}
const cases = floods.flatMap(([connections, pipelined]) =>
  Object.entries(keys).flatMap(([keyName, key]) =>
    Object.entries(requests).map(([work, request]): Case => {
      const name = `${connections} connections with ${pipelined} ${work} each, ${keyName}`
      return { name, connections, pipelined, request: request(key) }
    }),
  ),
)
cases.push({
  name: `${MANY} connections with a list under way at all times`,
  connections: MANY,
  pipelined: 1,
  request: requests.lists(keys['with a right key']),
})

/** Polite callers, each with one request at a time, and how many requests they send. */
const CALLERS = 4
const MIN_REQUESTS = 200
const PAUSE_MS = 5

/**
 * How many answers the flood may get while a polite caller waits for its own, at the 99th percentile. Served one after the
 * other, 4 connections with 5,000 requests would get 20,000. A list or an update also waits for PostgreSQL, and everything behind
 * HAProxy for another process. A new connection is accepted behind those of the flood, with four answers for each of them.
 */
const MAX_ANSWERS_DURING_REQUEST = 5000
const MAX_ANSWERS_DURING_LIVEZ = 1000

/** How much more memory a flood may take than the one before, in megabytes. */
const MAX_GROWTH = 150

/** Clients that send requests without end. */
interface Flood {
  /** How many answers came so far. */
  readonly answers: number
  /** How many connections were closed by the other side. */
  readonly closed: number
  stop(): void
}

/** What every answer begins with, and no body contains. */
const ANSWER = 'HTTP/1.1 '

/** Starts the clients. Each sends all of its requests again when all are answered or its connection is closed. */
function startFlood(t: Test, port: number, connections: number, pipelined: number, request: string): Flood {
  const bytes = request.repeat(pipelined)
  const open = new Set<Socket>()
  const flood = {
    answers: 0,
    closed: 0,
    stop() {
      for (const socket of open) socket.removeListener('close', replace).destroy()
    },
  }
  const run = (): void => {
    const socket = connect({ host: '127.0.0.1', port })
    open.add(socket)
    let pending = pipelined
    let tail = ''
    socket.on('error', () => {})
    socket.on('connect', () => socket.write(bytes))
    socket.on('data', (chunk: Buffer) => {
      const text = tail + chunk.toString('latin1')
      const count = text.split(ANSWER).length - 1
      tail = text.slice(1 - ANSWER.length)
      flood.answers += count
      pending -= count
      if (pending > 0) return
      pending += pipelined
      socket.write(bytes)
    })
    socket.on('close', replace)
  }
  function replace(this: Socket): void {
    open.delete(this)
    flood.closed++
    run()
  }
  for (let count = 0; count < connections; count++) run()
  t.teardown(flood.stop)
  return flood
}

/** One request of a polite caller: how long it took, and how many answers the flood got meanwhile. */
interface Wait {
  readonly milliseconds: number
  readonly answersToOthers: number
}

/** What the polite callers have met, with what has failed. */
interface Meeting {
  readonly calls: readonly Wait[]
  readonly probes: readonly Wait[]
  readonly failures: readonly string[]
}

/** Sends the requests of the polite callers, each of which updates and lists its own pet. */
async function callPolitely(port: number, flood: Flood): Promise<Meeting> {
  const failures: string[] = []
  const calls: Wait[] = []
  const probes: Wait[] = []
  const measure = async (waits: Wait[], call: () => Promise<string | false>): Promise<void> => {
    const since = performance.now()
    const answers = flood.answers
    const failure = await call().catch((error: unknown) => String(error))
    if (failure !== false) failures.push(failure)
    waits.push({ milliseconds: performance.now() - since, answersToOthers: flood.answers - answers })
    await setTimeout(PAUSE_MS)
  }
  let isProbing = true
  const probing = (async () => {
    while (isProbing) {
      await measure(probes, async () => {
        const { status } = await callerOf(port)('GET', '/livez')
        return status !== 200 && `/livez: ${status}`
      })
    }
  })()
  const caller = async (_: unknown, index: number): Promise<void> => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
    for (let quantity = 1; quantity <= MIN_REQUESTS / CALLERS / 2; quantity++) {
      await measure(calls, async () => {
        const { status, text } = await send('PATCH', `/v1/inventory/${index + 2}`, json({ quantity }))
        return (status !== 200 || JSON.parse(text).quantity !== quantity) && `${status} ${text}`
      })
      await measure(calls, async () => {
        const { status, text } = await send('GET', '/v1/inventory')
        return (status !== 200 || JSON.parse(text)[index + 1].quantity !== quantity) && `${status} ${text}`
      })
    }
    agent.destroy()
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  isProbing = false
  await probing
  return { calls, probes, failures }
}

t.test('floods of requests keep nobody else waiting', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 5) n")
  const server = await startServer(t, { DATABASE_URL: database.url })
  server.process.stdout?.removeAllListeners('data').resume()

  for (const [entrance, port] of await entrancesOf(t, server.port)) {
    for (const { name: flooding, connections, pipelined, request } of cases) {
      const name = `${flooding}, ${entrance}`
      const earlier = (await usageOf(server.process.pid))?.memory ?? 0
      const flood = startFlood(t, port, connections, pipelined, request)
      // A connection that is closed while it sends may lose its answers.
      while (flood.answers + flood.closed < 100) await setTimeout(5)
      const before = flood.answers
      const start = performance.now()
      const { calls, probes, failures } = await callPolitely(port, flood)
      const rate = (1000 * (flood.answers - before)) / (performance.now() - start)
      const { memory = 0 } = (await usageOf(server.process.pid)) ?? {}
      flood.stop()

      t.strictSame(failures.slice(0, 5), [], `${name}: every polite request is served`)
      if (pipelined === 1) t.equal(flood.closed, 0, `${name}: no connection is lost`)
      const duringRequest = p99(calls, 'answersToOthers')
      const duringLivez = p99(probes, 'answersToOthers')
      const everyone = 5 * connections
      const maxDuringLivez = entrance === 'alone' ? MAX_ANSWERS_DURING_LIVEZ : MAX_ANSWERS_DURING_REQUEST
      t.ok(
        duringRequest <= Math.max(MAX_ANSWERS_DURING_REQUEST, everyone) &&
          duringLivez <= Math.max(maxDuringLivez, everyone),
        `${name}: ${duringRequest} answers to the flood during a request, ${duringLivez} during /livez`,
      )
      t.ok(memory - earlier < MAX_GROWTH, `${name}: ${earlier.toFixed(0)}, then ${memory.toFixed(0)} MB`)
      t.comment(
        `${calls.length} requests: 99 % within ${p99(calls, 'milliseconds').toFixed(0)} ms; ${probes.length} /livez on new connections: 99 % within ${p99(probes, 'milliseconds').toFixed(0)} ms; ${rate.toFixed(0)} answers/s to the flood`,
      )
    }
  }
})

function p99(waits: readonly Wait[], of: keyof Wait): number {
  const sorted = waits.map((wait) => wait[of]).sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length * 0.99)] ?? 0
}
