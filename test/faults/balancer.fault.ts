import { once } from 'node:events'
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { Agent, createServer, type IncomingHttpHeaders } from 'node:http'
import { get, Agent as SecureAgent } from 'node:https'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { connect as connectSecurely } from 'node:tls'
import t, { type Test } from 'tap'
import { type Balancer, startBalancer } from '../support/balancer.ts'
import { makeCertificates } from '../support/certificates.ts'
import { isError } from '../support/error-shape.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import { listen } from '../support/listen.ts'
import { freePort } from '../support/other-program.ts'
import { temporaryFolder } from '../support/program.ts'
import { openRaw, parseResponse } from '../support/raw.ts'

interface Backend {
  readonly port: number
  /** What it answers to the health check. */
  health: number
  /** How many requests it has answered, all with a 200. */
  served: number
}

/** A process that serves whatever its health check says. */
async function startBackend(t: Test): Promise<Backend> {
  const server = createServer((request, response) => {
    if (request.url === '/readyz') response.statusCode = backend.health
    else backend.served++
    response.end()
  })
  const backend = { port: await listen(t, server), health: 200, served: 0 }
  return backend
}

/** Two of them behind HAProxy, and requests without end, none of which may fail. */
async function underLoad(t: Test, test: (one: Backend, two: Backend, proxy: Balancer) => Promise<void>) {
  const [one, two] = [await startBackend(t), await startBackend(t)]
  const balancer = await startBalancer(t, [one.port, two.port])
  const failures: number[] = []
  let isOver = false
  const calls = (async () => {
    while (!isOver) {
      const { status } = await callerOf(balancer.port)('GET', '/v1/inventory')
      if (status !== 200) failures.push(status)
    }
  })()
  await test(one, two, balancer)
  isOver = true
  await calls
  t.strictSame(failures, [])
}

/** Resolves when each has served more requests. */
async function serve(...backends: readonly Backend[]): Promise<void> {
  const before = backends.map(({ served }) => served)
  await eventually('all to serve', async () =>
    backends.every(({ served }, index) => served > (before[index] ?? 0) + 20),
  )
}

t.test('a process that was not ready once stays in use', (t) =>
  underLoad(t, async (one, two) => {
    for (const backend of [one, two]) backend.health = 503
    // Long enough for a check, and too short for a second one of a process that was busy for as long.
    await setTimeout(300)
    for (const backend of [one, two]) backend.health = 200
    await serve(one, two)
  }),
)

t.test('while no process is ready, all are in use', (t) =>
  underLoad(t, async (one, two, { output }) => {
    for (const backend of [one, two]) backend.health = 503
    await output(/has no server available/)
    await serve(one, two)
  }),
)

t.test('a process that shuts down gets no further request', (t) =>
  underLoad(t, async (one, two, { output }) => {
    one.health = 404
    await output(/Server inventory\/one is stopping/)
    const before = one.served
    await serve(two)
    t.ok(one.served <= before + 1, 'one request may be on its way')
  }),
)

t.test(
  'if an answer does not come, a list is asked for again, and an update is not sent again',
  async (t) => {
    const received: string[] = []
    const ending = createServer((request, response) => {
      if (request.url === '/readyz') response.end()
      else {
        received.push(`${request.method}`)
        request.socket.destroy()
      }
    })
    const [lost, other] = [await listen(t, ending), await startBackend(t)]
    const { port } = await startBalancer(t, [lost, other.port])
    const calls = { GET: [] as number[], PATCH: [] as number[] }
    for (const method of ['GET', 'PATCH'] as const) {
      while (received.filter((it) => it === method).length < 5)
        calls[method].push((await callerOf(port)(method, '/v1/inventory/1', json({ quantity: 1 }))).status)
    }
    t.strictSame(new Set(calls.GET), new Set([200]))
    t.equal(calls.PATCH.filter((status) => status === 502).length, 5)
    t.equal(other.served, calls.GET.length + calls.PATCH.length - 5)
  },
)

t.test('a body that does not arrive gets the error body from HAProxy, and reaches no process', async (t) => {
  const backend = await startBackend(t)
  const { port } = await startBalancer(t, [backend.port])
  const { socket, received } = await openRaw(port)
  socket.write('PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"quan')
  isError(t, parseResponse(await received), 408, 'request_timeout')
  t.equal(backend.served, 0)
})

t.test('with 10,600 connections from two addresses, requests from a third are served', async (t) => {
  const backend = await startBackend(t)
  const { port } = await startBalancer(t, [backend.port])
  const sockets: Socket[] = []
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
  })
  const open = (): void => {
    const localAddress = `127.0.0.${2 + (sockets.length % 2)}`
    const socket = connect({ host: '127.0.0.1', port, localAddress })
    socket.on('error', () => {})
    socket.on('connect', () => socket.write('GET /v1/inventory HTTP/1.1\r\nHost: x\r\n\r\n'))
    sockets.push(socket)
  }
  let polite = 0
  const statuses = new Map<number, number>()
  while (sockets.length < 10_600) {
    for (let count = 0; count < 100; count++) open()
    const { status } = await callerOf(port, {}, new Agent({ localAddress: '127.0.0.4' }))('GET', '/livez')
    statuses.set(status, (statuses.get(status) ?? 0) + 1)
    polite++
  }
  t.strictSame(statuses, new Map([[200, polite]]))
  t.ok(sockets.filter(({ destroyed }) => !destroyed).length >= 6000, 'there are that many connections')
})

t.test('HTTPS is TLS 1.2 or newer, HTTP redirects to it, and a renewal loses no request', async (t) => {
  const folder = await temporaryFolder(t)
  const certificate = path.join(folder, 'certificate.pem')
  const install = async (name: string): Promise<string> => {
    const { ca, server } = await makeCertificates(folder, name)
    const parts = [await readFile(`${server}.crt`), await readFile(`${server}.key`)]
    await writeFile(`${certificate}.new`, Buffer.concat(parts))
    await copyFile(`${certificate}.new`, certificate)
    return readFile(ca, 'utf8')
  }
  const former = await install('former')
  const backend = await startBackend(t)
  const securePort = await freePort()
  const { port, reload } = await startBalancer(t, [backend.port], {
    CERTIFICATE: certificate,
    LISTEN_HTTPS: `127.0.0.1:${securePort}`,
    PUBLIC_HTTPS_PORT: `:${securePort}`,
  })

  const { status, headers } = await callerOf(port)('GET', '/v1/inventory?x=1')
  t.equal(status, 308)
  t.equal(headers.location, `https://127.0.0.1:${securePort}/v1/inventory?x=1`)
  const old = connectSecurely({ port: securePort, minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ca: former })
  await t.rejects(once(old, 'secureConnect'))

  const authorities = [former, await install('newer')]
  const failures: string[] = []
  let isStopped = false
  let served = 0
  const client = async (keepAlive: boolean): Promise<void> => {
    const agent = new SecureAgent({ keepAlive, maxSockets: 1, ca: authorities })
    while (!isStopped) {
      await secureGet(agent, securePort).catch((error: Error) => failures.push(error.message))
      served++
      await setTimeout(5)
    }
    agent.destroy()
  }
  const clients = [true, true, false, false].map(client)
  await eventually('requests', async () => served > 100)
  await reload()
  await eventually('the new certificate', async () => {
    const fresh = new SecureAgent({ ca: authorities[1] })
    return secureGet(fresh, securePort).then(
      () => true,
      () => false,
    )
  })
  const during = served
  await eventually('more requests', async () => served > during + 100)
  isStopped = true
  await Promise.all(clients)
  t.strictSame(failures, [], `none of ${served} requests has failed`)
})

function secureGet(agent: SecureAgent, port: number): Promise<IncomingHttpHeaders> {
  return new Promise((resolve, reject) => {
    get({ host: 'localhost', port, path: '/livez', agent }, (answer) => {
      answer.resume()
      answer.on('end', () => resolve(answer.headers))
      answer.on('error', reject)
    }).on('error', reject)
  })
}
