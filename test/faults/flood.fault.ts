import { readFile } from 'node:fs/promises'
import { connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startBalancer } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { type Answer, createSender, json, type Send } from '../support/http.ts'
import { apiKey, persistentCaller, readUsage, run, startServer } from '../support/program.ts'

/** More connections than keep two cores at work, or as many as this process may open. */
const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
const MANY = Math.min(5000, Number(/Max open files +(\d+)/.exec(limits)?.[1] ?? 1024) - 200)

const withKey = `Authorization: Bearer ${apiKey}\r\n`
const wrongKey = 'Authorization: Bearer wrong\r\n'
const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`
const patch = (headers: string, body = '{"quantity":1}', length = body.length): string =>
  `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${headers}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`

const list = get('/v1/inventory', withKey)

/** A flood that goes on until it is stopped. */
interface Flood {
  readonly connections: number
  /** How many answers came so far. */
  readonly answers: number
  /** How many connections were closed by the other side. */
  readonly closed: number
  stop(): void
}

/** Starts a flood at the port of a process, with or without a balancer in front. */
type Start = (t: Test, port: number, isAlone: boolean) => Promise<Flood>

/** Polite callers, each with one request at a time, and how often each updates, lists and asks for /livez. */
const CALLERS = [0, 1, 2, 3]
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

/** What every answer begins with, and no body contains. */
const ANSWER = 'HTTP/1.1 '

/**
 * Clients that send so many requests at once, again when all are answered or the connection is closed. The addresses share the
 * connections.
 */
function sendWithoutEnd(request: string, pipelined: number, connections: number, addresses = 1): Start {
  return async (t, port) => {
    const bytes = request.repeat(pipelined)
    const open = new Set<Socket>()
    let isStopped = false
    const flood = {
      connections,
      answers: 0,
      closed: 0,
      stop() {
        isStopped = true
        for (const socket of open) socket.removeAllListeners('close').destroy()
      },
    }
    t.teardown(flood.stop)
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
    // A connection that is closed while it sends may lose its answers.
    while (flood.answers + flood.closed < 100) await setTimeout(5)
    return flood
  }
}

/**
 * Clients, in a process of their own, whose requests or responses do not go on: what each sends, the connections of each address, and
 * those for a process without a balancer, if they are others: as many as it accepts.
 */
function holdOpen(input: string, addresses = '127.0.0.2=2100', alone = addresses): Start {
  return async (t, port, isAlone) => {
    const args = ['test/support/held-connections.py', String(port), isAlone ? alone : addresses]
    const { process, output } = run(t, 'python3', args, { input })
    await output(/open/)
    return { connections: 0, answers: 0, closed: 0, stop: () => process.kill() }
  }
}

/** Clients of HTTP/2, each with a hundred requests, whose responses it lets no byte of through. */
const holdHttp2: Start = async (t, port) => {
  const sessions = Array.from({ length: 25 }, () => {
    const session = connectHttp2(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 0 } })
    session.on('error', () => {})
    for (let count = 0; count < 100; count++) session.request({ ':path': '/livez' }).on('error', () => {})
    return session
  })
  const stop = (): void => {
    for (const session of sessions) session.destroy()
  }
  t.teardown(stop)
  return { connections: 0, answers: 0, closed: 0, stop }
}

const floods: Readonly<Record<string, Readonly<Record<string, Start>>>> = {
  'clients that send requests without end': {
    '4 connections with 5,000 lists each, without a key': sendWithoutEnd(get('/v1/inventory'), 5000, 4),
    '4 connections with 5,000 updates each': sendWithoutEnd(patch(withKey), 5000, 4),
    '64 connections with 200 lists each': sendWithoutEnd(list, 200, 64),
    '64 connections with 200 updates each, with a wrong key': sendWithoutEnd(patch(wrongKey), 200, 64),
    '500 connections with 20 lists each': sendWithoutEnd(list, 20, 500),
    '500 connections with 20 updates each': sendWithoutEnd(patch(withKey), 20, 500),
    // One address may not open as many through the balancer.
    'connections with a list under way at all times': sendWithoutEnd(list, 1, MANY, 20),
    '3,000 connections with a health check under way': sendWithoutEnd(get('/livez'), 1, 3000),
    '100 addresses with 40 connections and wrong keys each': sendWithoutEnd(
      get('/v1/inventory', wrongKey),
      1,
      4000,
      100,
    ),
  },
  'clients whose requests or responses do not go on': {
    'responses that nobody reads': holdOpen(
      get('/docs/reference.js').repeat(8),
      '127.0.0.2=2100',
      '127.0.0.2=10300',
    ),
    'lists that nobody reads': holdOpen(list.repeat(8)),
    'bodies that never end': holdOpen(patch('', 'x'.repeat(17_000), 1e9)),
    'headers that never end': holdOpen('GET / HTTP/1.1\r\nHost: x\r\n'),
    'silent connections': holdOpen('', '127.0.0.2=6001,127.0.0.3=1000,127.0.0.4=1000,127.0.0.5=1000'),
    'responses of HTTP/2 without a window': holdHttp2,
  },
}

/**
 * Has each caller update and list its own pet, and, with a port, ask for /livez on new connections. Returns what failed, and how many
 * answers the flood got during each request.
 */
async function callPolitely(callers: readonly Send[], flood: Flood, port?: number) {
  const failures: string[] = []
  const waits: number[] = []
  const measure = async (call: Promise<Answer>, isRight: (text: string) => boolean): Promise<void> => {
    const answers = flood.answers
    const failure = await call.then(
      ({ status, text }) => (status !== 200 || !isRight(text)) && `${status} ${text}`,
      String,
    )
    if (failure !== false) failures.push(failure)
    waits.push(flood.answers - answers)
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
  return { waits, failures }
}

for (const [clients, starts] of Object.entries(floods)) {
  t.test(`${clients} keep nobody else waiting`, async (t) => {
    const database = await testDatabase(t, { entries: 5 })
    const NODE_OPTIONS = `--max-old-space-size=${MAX_HEAP_MB}`
    const server = await startServer(t, { DATABASE_URL: database.url, NODE_OPTIONS })
    server.process.stdout?.removeAllListeners('data').resume()
    const balancer = await startBalancer(t, [server.port])
    for (const port of [server.port, balancer.port]) {
      const isAlone = port === server.port
      for (const [flooding, start] of Object.entries(starts)) {
        const title = `${flooding}, ${isAlone ? 'alone' : 'behind HAProxy'}`
        const callers = CALLERS.map(() => persistentCaller(t, port))
        await Promise.all(callers.map((send) => send('GET', '/livez')))
        const flood = await start(t, port, isAlone)
        // A process on its own accepts a new connection behind those of the flood, so that it may wait for minutes.
        const { waits, failures } = await callPolitely(callers, flood, isAlone ? undefined : port)
        const { memory = 0 } = (await readUsage(server.process.pid)) ?? {}
        flood.stop()
        t.strictSame(failures.slice(0, 5), [], `${title}: every polite request is served`)
        const wait = waits.sort((a, b) => a - b)[Math.floor(waits.length * 0.99)] ?? 0
        const limit = Math.max(MAX_ANSWERS_DURING_REQUEST, 10 * flood.connections)
        // Behind HAProxy, a request also waits for another process.
        if (isAlone) t.ok(wait <= limit, `${title}: ${wait} answers to the flood during a request`)
        if (flood.connections === MANY) t.equal(flood.closed, 0, `${title}: no connection is lost`)
        t.ok(memory < MAX_MEMORY_MB, `${title}: ${memory.toFixed(0)} MB`)
      }
    }
  })
}
