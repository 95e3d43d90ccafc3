import { readFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { apiKey } from '../support/app.ts'
import { type Entrance, startEntrances } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { type Answer, createSender, json, type Send } from '../support/http.ts'
import { type RunningServer, readUsage, run, startServer } from '../support/program.ts'

/** More connections than keep two cores at work, or as many as this process may open. */
const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
const MANY = Math.min(5000, Number(/Max open files +(\d+)/.exec(limits)?.[1] ?? 1024) - 200)

const withKey = `Authorization: Bearer ${apiKey}\r\n`
const wrongKey = 'Authorization: Bearer wrong\r\n'
const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`
const patch = (headers: string, body = '{"quantity":1}', length = body.length): string =>
  `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${headers}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`

const list = get('/v1/inventory', withKey)

/** Clients that send requests without end: the connections, the addresses that share them, and how many requests each sends at once. */
type Busy = readonly [connections: number, addresses: number, pipelined: number, request: string]

const busy: Readonly<Record<string, Busy>> = {
  '4 connections with 5,000 lists each, without a key': [4, 1, 5000, get('/v1/inventory')],
  '4 connections with 5,000 updates each': [4, 1, 5000, patch(withKey)],
  '64 connections with 200 lists each': [64, 1, 200, list],
  '64 connections with 200 updates each, with a wrong key': [64, 1, 200, patch(wrongKey)],
  '500 connections with 20 lists each': [500, 1, 20, list],
  '500 connections with 20 updates each': [500, 1, 20, patch(withKey)],
  // One address may not open as many through the balancer.
  'connections with a list under way at all times': [MANY, 20, 1, list],
  '3,000 connections with a health check under way': [3000, 1, 1, get('/livez')],
  '100 addresses with 40 connections and wrong keys each': [4000, 100, 1, get('/v1/inventory', wrongKey)],
}

/**
 * Clients whose requests or responses do not go on: the connections of each address, what each of them sends, and the connections for
 * a process without a balancer, if they are others: as many as it accepts.
 */
type Held = readonly [addresses: string, data: string, alone?: string]

const SILENT = '127.0.0.2=6001,127.0.0.3=1000,127.0.0.4=1000,127.0.0.5=1000'
const held: Readonly<Record<string, Held>> = {
  'responses that nobody reads': ['127.0.0.2=2100', get('/docs/reference.js').repeat(8), '127.0.0.2=10300'],
  'lists that nobody reads': ['127.0.0.2=2100', list.repeat(8)],
  'bodies that never end': ['127.0.0.2=2100', patch('', 'x'.repeat(17_000), 1e9)],
  'headers that never end': ['127.0.0.2=2100', 'GET / HTTP/1.1\r\nHost: x\r\n'],
  'silent connections': [SILENT, ''],
}

/** For how long connections are held at most, and how many further ones are opened meanwhile. */
const HELD_SECONDS = 120
const PER_SECOND = 50

/** Polite callers, each with one request at a time, and how often each updates, lists and asks for /livez. */
const CALLERS = 4
const ROUNDS = 10
const PAUSE_MS = 5

/**
 * How many answers the flood may get from a process while a polite caller waits for its own, at the 99th percentile: ten of each
 * connection, or as many as here. Served one after the other, 4 connections with 5,000 requests would get 20,000.
 */
const MAX_ANSWERS_DURING_REQUEST = 10_000

/** How much memory the process may take, and how much of that its heap, in megabytes. V8 leaves garbage where it is until then. */
const MAX_MEMORY_MB = 500
const MAX_HEAP_MB = 350

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
function startBusy(t: Test, port: number, [connections, addresses, pipelined, request]: Busy): Flood {
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
  const script = 'test/support/held-connections.py'
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

/** Opens the connections of polite callers. */
async function openCallers(t: Test, port: number): Promise<Send[]> {
  const callers = Array.from({ length: CALLERS }, () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    t.teardown(() => agent.destroy())
    return createSender(port, { authorization: `Bearer ${apiKey}` }, agent)
  })
  await Promise.all(callers.map((send) => send('GET', '/livez')))
  return callers
}

/**
 * Has each caller update and list its own pet, and, with a port, ask for /livez on new connections. Returns what failed, and for each
 * request, how many milliseconds it took and how many answers the flood got meanwhile.
 */
async function callPolitely(callers: readonly Send[], flood: Flood, port?: number) {
  const failures: string[] = []
  const waits: number[] = []
  const milliseconds: number[] = []
  const measure = async (call: Promise<Answer>, isRight: (text: string) => boolean): Promise<void> => {
    const since = performance.now()
    const answers = flood.answers
    const failure = await call.then(
      ({ status, text }) => (status !== 200 || !isRight(text)) && `${status} ${text}`,
      String,
    )
    if (failure !== false) failures.push(failure)
    waits.push(flood.answers - answers)
    milliseconds.push(performance.now() - since)
    await setTimeout(PAUSE_MS)
  }
  const call = async (send: Send, index: number): Promise<void> => {
    for (let quantity = 1; quantity <= ROUNDS; quantity++) {
      const update = send('PATCH', `/v1/inventory/${index + 2}`, json({ quantity }))
      await measure(update, (text) => JSON.parse(text).quantity === quantity)
      await measure(send('GET', '/v1/inventory'), (text) => JSON.parse(text)[index + 1].quantity === quantity)
      if (port !== undefined) await measure(createSender(port)('GET', '/livez'), () => true)
    }
  }
  await Promise.all(callers.map(call))
  return { waits, failures, milliseconds }
}

async function startService(t: Test): Promise<RunningServer> {
  const database = await testDatabase(t, { entries: 5 })
  const server = await startServer(t, {
    DATABASE_URL: database.url,
    NODE_OPTIONS: `--max-old-space-size=${MAX_HEAP_MB}`,
  })
  server.process.stdout?.removeAllListeners('data').resume()
  return server
}

/** Asserts that polite callers at another address are served during a flood, and stops it. */
async function servesOthers(
  t: Test,
  title: string,
  { name, port, server }: { readonly name: Entrance; readonly port: number; readonly server: RunningServer },
  start: () => Promise<Flood>,
  connections = 0,
): Promise<Flood> {
  const callers = await openCallers(t, port)
  const flood = await start()
  // A process on its own accepts a new connection behind those of the flood, so that it may wait for minutes.
  const { waits, failures, milliseconds } = await callPolitely(
    callers,
    flood,
    name === 'alone' ? undefined : port,
  )
  const { memory = 0 } = (await readUsage(server.process.pid)) ?? {}
  flood.stop()
  t.strictSame(failures.slice(0, 5), [], `${title}: every polite request is served`)
  const most = Math.max(MAX_ANSWERS_DURING_REQUEST, 10 * connections)
  // Behind HAProxy, a request also waits for another process.
  if (name === 'alone')
    t.ok(p99(waits) <= most, `${title}: ${p99(waits)} answers to the flood during a request`)
  t.ok(memory < MAX_MEMORY_MB, `${title}: ${memory.toFixed(0)} MB`)
  t.comment(
    `${title}: 99 % of ${waits.length} requests within ${p99(milliseconds).toFixed(0)} ms; ${memory.toFixed(0)} MB`,
  )
  return flood
}

t.test('clients that send requests without end keep nobody else waiting', async (t) => {
  const server = await startService(t)
  for (const [name, port] of await startEntrances(t, server.port)) {
    for (const [flooding, clients] of Object.entries(busy)) {
      const start = async (): Promise<Flood> => {
        const flood = startBusy(t, port, clients)
        // A connection that is closed while it sends may lose its answers.
        while (flood.answers + flood.closed < 100) await setTimeout(5)
        return flood
      }
      const title = `${flooding}, ${name}`
      const { closed } = await servesOthers(t, title, { name, port, server }, start, clients[0])
      if (clients[0] === MANY) t.equal(closed, 0, `${name}: no connection is lost`)
    }
  }
})

t.test('clients whose requests or responses do not go on keep nobody else waiting', async (t) => {
  const server = await startService(t)
  for (const [name, port] of await startEntrances(t, server.port)) {
    for (const [flooding, [addresses, data, alone = addresses]] of Object.entries(held)) {
      const start = (): Promise<Flood> => startHeld(t, port, name === 'alone' ? alone : addresses, data)
      await servesOthers(t, `${flooding}, ${name}`, { name, port, server }, start)
    }
    const start = async (): Promise<Flood> => startHttp2(t, `http://127.0.0.1:${port}`)
    await servesOthers(t, `responses of HTTP/2 without a window, ${name}`, { name, port, server }, start)
  }
})

function p99(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length * 0.99)] ?? 0
}
