import { once } from 'node:events'
import { appendFile, cp, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import {
  Agent,
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http'
import { type AgentOptions, Agent as SecureAgent } from 'node:https'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { connect as connectSecurely } from 'node:tls'
import t, { type Test } from 'tap'
import { apiKey, startService } from '../support/app.ts'
import { startBalancer } from '../support/balancer.ts'
import { makeCertificates } from '../support/certificates.ts'
import { eventually, until } from '../support/eventually.ts'
import { createSender, isError, json, type Send } from '../support/http.ts'
import { freePort, listen } from '../support/ports.ts'
import { temporaryFolder } from '../support/program.ts'
import { openRaw, parseResponse, sendRaw } from '../support/raw.ts'

type Backend = Awaited<ReturnType<typeof startBackend>>

/** A process that serves whatever its health check says. It answers with a 200, or as `serve` does. */
async function startBackend(t: Test, serve: RequestListener = (_, response) => void response.end()) {
  const backend = {
    port: 0,
    /** What it answers to the health check. */
    health: 200,
    /** How many requests it has received. */
    received: 0,
  }
  const server = createServer((request, response) => {
    if (request.url === '/readyz') return response.writeHead(backend.health).end()
    backend.received++
    return serve(request, response)
  })
  backend.port = await listen(t, server)
  return backend
}

/** Sends requests without end, by each caller one after the other. Returns what ends them, and asserts that none has failed. */
function callWithoutEnd(t: Test, callers: readonly Send[]): () => Promise<void> {
  const failures: unknown[] = []
  let isOver = false
  t.teardown(() => (isOver = true))
  const calls = callers.map(async (send) => {
    while (!isOver) {
      const outcome = await send('GET', '/v1/inventory').then(({ status }) => status, String)
      if (outcome !== 200) failures.push(outcome)
    }
  })
  return async () => {
    isOver = true
    await Promise.all(calls)
    t.strictSame(failures, [])
  }
}

/** Resolves when each has received more requests. */
async function serve(...backends: readonly Backend[]): Promise<void> {
  const before = backends.map(({ received }) => received)
  await until('all to serve', () =>
    backends.every(({ received }, index) => received > (before[index] ?? 0) + 50),
  )
}

t.test(
  'a process is in use unless it shuts down, or fails several checks while another does not',
  async (t) => {
    const [one, two] = [await startBackend(t), await startBackend(t)]
    const { port, output } = await startBalancer(t, [one.port, two.port])
    const end = callWithoutEnd(t, [createSender(port)])
    for (const backend of [one, two]) backend.health = 503
    // Long enough for a check, and too short for a second one of a process that was busy for as long.
    await setTimeout(300)
    for (const backend of [one, two]) backend.health = 200
    await serve(one, two)

    one.health = 404
    await output(/Server inventory\/one is stopping/)
    const before = one.received
    await serve(two)
    t.ok(one.received <= before + 1, 'one request may be on its way')

    for (const backend of [one, two]) backend.health = 503
    await output(/has no server available/)
    await serve(one, two)
    await end()
  },
)

t.test('if an answer does not come, a list is asked for again, and an update is not', async (t) => {
  const lost = await startBackend(t, (request) => request.socket.destroy())
  const other = await startBackend(t)
  const { port } = await startBalancer(t, [lost.port, other.port])
  /** Calls until five requests are lost. Returns how many calls got each status. */
  const call = async (method: string): Promise<Record<string, number>> => {
    const limit = lost.received + 5
    const statuses: Record<string, number> = {}
    while (lost.received < limit) {
      const { status } = await createSender(port)(method, '/v1/inventory/1', json({ quantity: 1 }))
      statuses[status] = (statuses[status] ?? 0) + 1
    }
    return statuses
  }
  t.strictSame(await call('GET'), { 200: other.received })
  const lists = other.received
  t.strictSame(await call('PATCH'), { 200: other.received - lists, 502: 5 })
})

t.test('a body that does not arrive gets the error body from HAProxy, and reaches no process', async (t) => {
  const backend = await startBackend(t)
  const { port } = await startBalancer(t, [backend.port])
  const { socket } = await openRaw(port)
  socket.write('PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"quan')
  // HAProxy 3.2 keeps the connection.
  const [answer] = await once(socket, 'data')
  isError(t, parseResponse(String(answer)), 408, 'request_timeout')
  t.equal(backend.received, 0)
})

t.test(
  'a request to change the protocol reaches the service as any other, and so does the next',
  async (t) => {
    const received: IncomingMessage[] = []
    const backend = await startBackend(t, (request, response) => {
      received.push(request)
      request.resume().on('end', () => response.end('answer'))
    })
    const { port } = await startBalancer(t, [backend.port])
    const update = (head: string): string =>
      `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${head}Content-Length: 30\r\n\r\nGET /smuggled HTTP/1.1\r\nHos:\r\n`
    const upgrade =
      'Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n'
    const answers = await sendRaw(port, update(upgrade) + update('Connection: close\r\n'))
    t.equal(answers.match(/answer/g)?.length, 2)
    t.strictSame(
      received.map(({ method, url }) => `${method} ${url}`),
      ['PATCH /v1/inventory/1', 'PATCH /v1/inventory/1'],
    )
    for (const { headers } of received)
      t.notMatch(Object.keys(headers).join(), /upgrade|http2-settings/, 'no header of the connection is left')
    t.notMatch(received[0]?.headers.connection, /upgrade/i)
  },
)

t.test('errors of the service and the address of the caller come through HAProxy', async (t) => {
  const service = await startService(t, [], { env: { TRUST_PROXY: '127.0.0.1' } })
  const { port } = await startBalancer(t, [service.port])
  const headers = { authorization: `Bearer ${apiKey}`, 'x-forwarded-for': '203.0.113.9' }
  const send = createSender(port, headers, new Agent({ localAddress: '127.0.0.2' }))
  isError(t, await send('PATCH', '/v1/inventory/1', json('{')), 400, 'invalid_request')
  isError(t, await send('DELETE', '/v1/inventory/1'), 405, 'method_not_allowed')
  isError(t, await send('PATCH', '/v1/inventory/1', json('x'.repeat(5000))), 413, 'payload_too_large')
  t.ok(service.log.some(({ client }) => client === '127.0.0.2'))
})

t.test('while no process is ready, HAProxy answers with the one error body and Retry-After', async (t) => {
  const { port } = await startBalancer(t, [await freePort(), await freePort()])
  const answer = await createSender(port)('GET', '/v1/inventory')
  isError(t, answer, 503, 'service_unavailable')
  t.equal(answer.headers['retry-after'], '1')
})

t.test('a third server at the end of the file serves and is checked', async (t) => {
  const [one, two, three] = [await startBackend(t), await startBackend(t), await startBackend(t)]
  const folder = await temporaryFolder(t)
  await cp('ops', folder, { recursive: true })
  const config = path.join(folder, 'haproxy.cfg')
  await appendFile(config, `    server three 127.0.0.1:${three.port}\n`)
  const { port, output } = await startBalancer(t, [one.port, two.port], {}, config)
  while (three.received === 0) await createSender(port)('GET', '/v1/inventory')
  three.health = 503
  await output(/Server inventory\/three is DOWN/)
})

t.test('an address may have a part of the connections, and a proxy in front all', async (t) => {
  const backend = await startBackend(t)
  const { port } = await startBalancer(t, [backend.port], { PROXIES: '127.0.0.6 10.0.0.0/8' })
  for (const [localAddress, allowed] of [
    ['127.0.0.2', 1000],
    ['127.0.0.3', 888],
    ['127.0.0.6', 2000],
  ] as const) {
    const sockets = new Set<Socket>()
    for (let index = 0; index < 2000; index++) {
      const socket = connect({ host: '127.0.0.1', port, localAddress })
      sockets.add(socket)
      t.teardown(() => socket.destroy())
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
      socket.write('GET /v1/inventory HTTP/1.1\r\nHost: x\r\n\r\n')
      // A connection that is refused may be reset before this process has noticed that it was open.
      await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {})
    }
    await until(`${allowed} connections`, () => sockets.size === allowed)
  }
  const { status } = await createSender(port, {}, new Agent({ localAddress: '127.0.0.4' }))('GET', '/livez')
  t.equal(status, 200)
})

t.test('HAProxy ends a connection whose client reads nothing of a response', async (t) => {
  let response: ServerResponse | undefined
  const backend = await startBackend(t, (_, outgoing) => {
    response = outgoing.end(Buffer.alloc(20_000_000))
  })
  const { port } = await startBalancer(t, [backend.port])
  const { socket } = await openRaw(port)
  socket.pause()
  socket.write('GET /v1/inventory HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the end of the connection', () => response?.destroyed === true)
})

/** How long common clients and load balancers keep an idle connection, in seconds, and longer than a request may take. */
const PAUSES = [12, 61, 91, 121]

t.test('a connection is served after as long a pause as clients and load balancers make', async (t) => {
  const { port: server } = await startService(t)
  const balancer = await startBalancer(t, [server])
  const request = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n'
  await Promise.all(
    [server, balancer.port].flatMap((port) =>
      PAUSES.map(async (seconds) => {
        const { socket } = await openRaw(port)
        socket.write(request)
        await once(socket, 'data')
        await setTimeout(seconds * 1000)
        t.notOk(socket.readableEnded, `after ${seconds} seconds: still open`)
        socket.write(request)
        const [answer] = await once(socket, 'data')
        t.match(String(answer), /^HTTP\/1\.1 200 /, `after ${seconds} seconds`)
        socket.destroy()
      }),
    ),
  )
})

t.test('HAProxy logs and counts what it answers itself, but no key', async (t) => {
  const backend = await startBackend(t)
  const metrics = await freePort()
  const env = { RATE_LIMIT: '1', PROXIES: '127.0.0.1', METRICS: `127.0.0.1:${metrics}` }
  const { port, output } = await startBalancer(t, [backend.port], env)
  const headers = { authorization: 'Bearer secret', 'x-forwarded-for': '203.0.113.7, 203.0.113.8' }
  const send = createSender(port, headers)
  const long = `/v1/"${'x'.repeat(500)}`
  const path = `${long}?key=secret`
  t.strictSame([(await send('GET', path)).status, (await send('GET', path)).status], [200, 429])
  await sendRaw(port, 'no HTTP\r\n\r\n')
  const [, first = '', second = ''] = await output(/^({.*})\n({.*})$/m)
  const { time, ...line } = JSON.parse(first)
  t.ok(Math.abs(time - Date.now()) < 60_000, 'the time is a number, as in the log of the service')
  const connection = '127.0.0.1'
  t.match(line, { level: 40, status: 429, error: 'too_many_requests', client: '203.0.113.8', connection })
  t.match(line, { method: 'GET', path: long.slice(0, 256) })
  t.match(JSON.parse(second), { status: 400, client: '-', connection })
  const { text } = await createSender(metrics)('GET', '/metrics')
  t.match(text, /^haproxy_frontend_requests_denied_total\{proxy="callers"\} 1$/m)
  const page = await readFile('docs/metrics.md', 'utf8')
  const documented = page.match(/haproxy_\w+/g) ?? []
  t.ok(documented.length > 5)
  for (const name of documented) t.match(text, `\n${name}{`)
})

t.test('HTTPS is TLS 1.2 or newer, HTTP redirects to it, and a renewal loses no request', async (t) => {
  const folder = await temporaryFolder(t)
  const certificates = path.join(folder, 'certificates')
  await mkdir(certificates)
  const make = async (name: string) => {
    const { ca, server } = await makeCertificates(folder, name)
    const pem = (await readFile(`${server}.crt`, 'utf8')) + (await readFile(`${server}.key`, 'utf8'))
    return { ca: await readFile(ca, 'utf8'), pem }
  }
  /** Replaces the file as a client of ACME does. */
  const put = async (pem: string): Promise<void> => {
    await writeFile(path.join(folder, 'new.pem'), pem)
    await rename(path.join(folder, 'new.pem'), path.join(certificates, 'store.pem'))
  }
  const [former, newer] = [await make('former'), await make('newer')]
  await put(former.pem)
  const backend = await startBackend(t)
  const securePort = await freePort()
  const { port, reload, output } = await startBalancer(t, [backend.port], {
    CERTIFICATE: certificates,
    LISTEN_HTTPS: `127.0.0.1:${securePort}`,
    PUBLIC_HTTPS_PORT: `:${securePort}`,
  })

  const { status, headers } = await createSender(port)('GET', '/v1/inventory?x=1')
  t.equal(status, 308)
  t.equal(headers.location, `https://127.0.0.1:${securePort}/v1/inventory?x=1`)
  const secure = { port: securePort, ca: former.ca, host: 'localhost' }
  const old = connectSecurely({ ...secure, minVersion: 'TLSv1', maxVersion: 'TLSv1.1' })
  await t.rejects(once(old, 'secureConnect'))
  const newest = connectSecurely({ ...secure, ALPNProtocols: ['h2', 'http/1.1'] })
  await once(newest, 'secureConnect')
  t.equal(newest.alpnProtocol, 'http/1.1', 'there is no HTTP/2')
  newest.destroy()

  const callerWith = (options: AgentOptions): Send => {
    const agent = new SecureAgent({ servername: 'localhost', maxSockets: 1, ...options })
    t.teardown(() => agent.destroy())
    return createSender(securePort, {}, agent)
  }
  const ca = [former.ca, newer.ca]
  const callers = [true, true, false, false].map((keepAlive) => callerWith({ keepAlive, ca }))
  const end = callWithoutEnd(t, callers)
  await serve(backend)
  await put('no certificate')
  await reload()
  await output(/unable to load certificate/)
  await serve(backend)
  await put(newer.pem)
  await reload()
  await eventually('the new certificate', () =>
    callerWith({ ca: newer.ca })('GET', '/livez').catch(() => false as const),
  )
  await serve(backend)
  await end()
})
