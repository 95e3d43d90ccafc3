import { readFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { apiKey } from '../support/app.ts'
import { entrancesOf } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { run } from '../support/program.ts'
import { root } from '../support/root.ts'
import { type RunningServer, startServer } from '../support/running-server.ts'

/** More connections than keep two cores at work, or as many as this process may open. */
const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
const MANY = Math.min(5000, Number(/Max open files +(\d+)/.exec(limits)?.[1] ?? 1024) - 200)

const withKey = `Authorization: Bearer ${apiKey}\r\n`
const wrongKey = 'Authorization: Bearer wrong\r\n'
const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`
const patch = (headers: string, body = '{"quantity":1}', length = body.length): string =>
  `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${headers}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`

/** Clients that send requests without end. */
interface Busy {
  readonly connections: number
  /** The number of requests that each connection sends at once. */
  readonly pipelined: number
  readonly request: string
  /** The number of addresses that share the connections; one address may not open as many through the balancer. */
  readonly addresses?: number
}

const busy: Readonly<Record<string, Busy>> = {
  '4 connections with 5,000 lists each, without a key': {
    connections: 4,
    pipelined: 5000,
    request: get('/v1/inventory'),
  },
  '4 connections with 5,000 updates each': { connections: 4, pipelined: 5000, request: patch(withKey) },
  '64 connections with 200 lists each': {
    connections: 64,
    pipelined: 200,
    request: get('/v1/inventory', withKey),
  },
  '64 connections with 200 updates each, with a wrong key': {
    connections: 64,
    pipelined: 200,
    request: patch(wrongKey),
  },
  '500 connections with 20 lists each': {
    connections: 500,
    pipelined: 20,
    request: get('/v1/inventory', withKey),
  },
  '500 connections with 20 updates each': { connections: 500, pipelined: 20, request: patch(withKey) },
  'connections with a list under way at all times': {
    connections: MANY,
    pipelined: 1,
    request: get('/v1/inventory', withKey),
    addresses: 20,
  },
  '3,000 connections with a health check under way': {
    connections: 3000,
    pipelined: 1,
    request: get('/livez'),
  },
  '100 addresses with 40 connections and wrong keys each': {
    connections: 4000,
    pipelined: 1,
    request: get('/v1/inventory', wrongKey),
    addresses: 100,
  },
}

/** Clients whose requests or responses do not go on: the connections of each address, and what each of them sends. */
interface Held {
  readonly addresses: string
  /** As many as a process accepts, for one without a balancer. */
  readonly alone?: string
  readonly data: string
}

const held: Readonly<Record<string, Held>> = {
  'responses that nobody reads': {
    addresses: '127.0.0.2=2100',
    alone: '127.0.0.2=10300',
    data: get('/docs/reference.js').repeat(8),
  },
  'lists that nobody reads': { addresses: '127.0.0.2=2100', data: get('/v1/inventory', withKey).repeat(8) },
  'bodies that never end': { addresses: '127.0.0.2=2100', data: patch('', 'x'.repeat(17_000), 1e9) },
  'headers that never end': { addresses: '127.0.0.2=2100', data: 'GET / HTTP/1.1\r\nHost: x\r\n' },
  'silent connections': {
    addresses: '127.0.0.2=6001,127.0.0.3=1000,127.0.0.4=1000,127.0.0.5=1000',
    data: '',
  },
}

/** For how long connections are held at most, and how many further ones are opened meanwhile. */
const HELD_SECONDS = 120
const PER_SECOND = 50

/** Polite callers, each with one request at a time, and how many requests each sends. */
const CALLERS = 4
const REQUESTS = 20
const PAUSE_MS = 5

/**
 * How many answers the flood may get while a polite caller waits for its own, at the 99th percentile: five of each connection, or as
 * many as here. Served one after the other, 4 connections with 5,000 requests would get 20,000. A list or an update also waits for
 * PostgreSQL, and everything behind HAProxy for another process. A new connection is accepted behind those of the flood.
 */
const MAX_ANSWERS_DURING_REQUEST = 5000

/** How much memory the process may take, in megabytes. */
const MAX_MEMORY_MB = 400

/** A flood that goes on until it is stopped. */
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
function startBusy(t: Test, port: number, { connections, pipelined, request, addresses = 1 }: Busy): Flood {
  const bytes = request.repeat(pipelined)
  const open = new Set<Socket>()
  let isStopped = false
  const flood = {
    answers: 0,
    closed: 0,
    stop() {
      isStopped = true
      for (const socket of open) socket.removeAllListeners('close').destroy()
    },
  }
  const start = (localAddress: string): void => {
    const socket = connect({ host: '127.0.0.1', port, localAddress })
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
    socket.on('close', async () => {
      open.delete(socket)
      flood.closed++
      // One that is refused would keep this process busy otherwise.
      await setTimeout(100)
      if (!isStopped) start(localAddress)
    })
  }
  // Not the address of the floods from one, whose connections the balancer may still count.
  const first = addresses === 1 ? 2 : 3
  for (let count = 0; count < connections; count++) start(`127.0.0.${first + (count % addresses)}`)
  t.teardown(flood.stop)
  return flood
}

/** Starts the clients in a process of their own, and waits until all are connected. */
async function startHeld(t: Test, port: number, addresses: string, data: string): Promise<Flood> {
  const script = path.join(root, 'test/support/held-connections.py')
  const args = [script, String(port), addresses, String(HELD_SECONDS), String(PER_SECOND)]
  const { process, output } = run(t, 'python3', args, { input: data })
  await output(/open/)
  return { answers: 0, closed: 0, stop: () => process.kill() }
}

/** Starts clients of HTTP/2, each with a hundred requests, whose responses it lets no byte of through. */
function startHttp2(t: Test, url: string): Flood {
  const sessions = Array.from({ length: 25 }, () => {
    const session = connectHttp2(url, { settings: { initialWindowSize: 0 } })
    session.on('error', () => {})
    for (let count = 0; count < 100; count++) session.request({ ':path': '/livez' }).on('error', () => {})
    return session
  })
  const stop = (): void => {
    for (const session of sessions) session.destroy()
  }
  t.teardown(stop)
  return { answers: 0, closed: 0, stop }
}

/** What the polite callers have met. */
interface Meeting {
  /** For each request, how many answers the flood got meanwhile. */
  readonly waits: readonly number[]
  readonly failures: readonly string[]
  readonly milliseconds: readonly number[]
}

/** Sends the requests of polite callers, each of which updates and lists its own pet, and asks for /livez on new connections. */
async function callPolitely(port: number, flood: Flood): Promise<Meeting> {
  const failures: string[] = []
  const waits: number[] = []
  const milliseconds: number[] = []
  const measure = async (call: () => Promise<string | false>): Promise<void> => {
    const since = performance.now()
    const answers = flood.answers
    const failure = await call().catch((error: unknown) => String(error))
    if (failure !== false) failures.push(failure)
    waits.push(flood.answers - answers)
    milliseconds.push(performance.now() - since)
    await setTimeout(PAUSE_MS)
  }
  const caller = async (_: unknown, index: number): Promise<void> => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
    for (let quantity = 1; quantity <= REQUESTS / 2; quantity++) {
      await measure(async () => {
        const { status, text } = await send('PATCH', `/v1/inventory/${index + 2}`, json({ quantity }))
        return (status !== 200 || JSON.parse(text).quantity !== quantity) && `${status} ${text}`
      })
      await measure(async () => {
        const { status, text } = await send('GET', '/v1/inventory')
        return (status !== 200 || JSON.parse(text)[index + 1].quantity !== quantity) && `${status} ${text}`
      })
      await measure(async () => {
        const { status } = await callerOf(port)('GET', '/livez')
        return status !== 200 && `/livez: ${status}`
      })
    }
    agent.destroy()
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return { waits, failures, milliseconds }
}

async function startService(t: Test): Promise<RunningServer> {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 5) n")
  const server = await startServer(t, { DATABASE_URL: database.url })
  server.process.stdout?.removeAllListeners('data').resume()
  return server
}

/** Asserts that polite callers at another address are served during a flood, and stops it. */
async function servesOthers(
  t: Test,
  title: string,
  { port, server }: { readonly port: number; readonly server: RunningServer },
  flood: Flood,
  connections = 0,
): Promise<void> {
  const { waits, failures, milliseconds } = await callPolitely(port, flood)
  const { memory = 0 } = (await usageOf(server.process.pid)) ?? {}
  flood.stop()
  t.strictSame(failures.slice(0, 5), [], `${title}: every polite request is served`)
  const most = Math.max(MAX_ANSWERS_DURING_REQUEST, 5 * connections)
  t.ok(p99(waits) <= most, `${title}: ${p99(waits)} answers to the flood during a request`)
  t.ok(memory < MAX_MEMORY_MB, `${title}: ${memory.toFixed(0)} MB`)
  t.comment(
    `${title}: 99 % of ${waits.length} requests within ${p99(milliseconds).toFixed(0)} ms; ${memory.toFixed(0)} MB`,
  )
}

t.test('clients that send requests without end keep nobody else waiting', async (t) => {
  const server = await startService(t)
  for (const [name, port] of await entrancesOf(t, server.port)) {
    for (const [flooding, clients] of Object.entries(busy)) {
      const flood = startBusy(t, port, clients)
      // A connection that is closed while it sends may lose its answers.
      while (flood.answers + flood.closed < 100) await setTimeout(5)
      await servesOthers(t, `${flooding}, ${name}`, { port, server }, flood, clients.connections)
      if (clients.connections === MANY) t.equal(flood.closed, 0, `${name}: no connection is lost`)
    }
  }
})

t.test('clients whose requests or responses do not go on keep nobody else waiting', async (t) => {
  const server = await startService(t)
  for (const [name, port] of await entrancesOf(t, server.port)) {
    for (const [flooding, { addresses, alone = addresses, data }] of Object.entries(held)) {
      const flood = await startHeld(t, port, name === 'alone' ? alone : addresses, data)
      await servesOthers(t, `${flooding}, ${name}`, { port, server }, flood)
    }
    const flood = startHttp2(t, `http://127.0.0.1:${port}`)
    await servesOthers(t, `responses of HTTP/2 without a window, ${name}`, { port, server }, flood)
  }
})

function p99(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length * 0.99)] ?? 0
}
