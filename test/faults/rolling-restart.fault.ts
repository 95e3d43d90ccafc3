import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { Transform } from 'node:stream'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { contradictionIn } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { freePort } from '../support/other-program.ts'
import { startRelay } from '../support/relay.ts'
import { root } from '../support/root.ts'
import { type RunningServer, startServer } from '../support/running-server.ts'
import { pathOf } from './needs.ts'

const configuration = path.join(root, 'ops/haproxy.cfg')

t.test(
  'two processes behind HAProxy are restarted one after the other without a failed request',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 0, 'available'],
      ['2', 0, 'available'],
    ])
    const start = (port: number): Promise<RunningServer> =>
      startServer(t, { DATABASE_URL: database.url, PORT: String(port) })
    const one = { name: 'one', port: await freePort() }
    const two = { name: 'two', port: await freePort() }
    const servers = new Map([
      [one, await start(one.port)],
      [two, await start(two.port)],
    ])
    const port = await freePort()
    const proxy = await startProxy(t, port, [one.port, two.port])
    const loads = [
      startLoad(t, { ports: [port], clients: 12, pets: [1] }),
      startLoad(t, { ports: [port], clients: 12, pets: [2], keepAlive: false }),
    ]

    for (const place of [one, two, one, two]) {
      await Promise.all(loads.map((load) => load.served(300)))
      const server = servers.get(place)
      const left = proxy.says(`Server inventory/${place.name} is DOWN`)
      server?.process.kill('SIGTERM')
      t.equal((await server?.ended)?.code, 0, `${place.name} has stopped`)
      await left
      const back = proxy.says(`Server inventory/${place.name} is UP`)
      servers.set(place, await start(place.port))
      await back
    }
    await Promise.all(loads.map((load) => load.served(300)))
    await Promise.all(loads.map((load) => load.stop()))

    for (const [index, load] of loads.entries()) {
      t.equal(load.failures.length, 0, `none of ${load.successes} requests has failed`)
      t.equal(contradictionIn(load.historyOf(index + 1), 0), undefined)
    }
  },
)

t.test('while no process is ready, HAProxy answers with the one error body and Retry-After', async (t) => {
  const [port, closed] = [await freePort(), await freePort()]
  await startProxy(t, port, [closed, closed], 503)

  const { status, headers, text } = await callerOf(port)('GET', '/v1/inventory')
  isError(t, { status, headers, body: text }, 503, 'service_unavailable')
  t.equal(headers['retry-after'], '1')
})

t.test('HAProxy uses a process whose readiness check takes longer than its interval', async (t) => {
  const { url } = await testDatabase(t)
  const distant = await startRelay(t, {
    target: () => new URL(url),
    towardsDatabase: () =>
      new Transform({
        transform: (data, _, done) => void setTimeout(150, data).then((it) => done(null, it)),
      }),
  })
  const [port, processPort, closed] = [await freePort(), await freePort(), await freePort()]
  // HAProxy uses each server until a check has failed. This one has to pass a check.
  await startProxy(t, port, [processPort, closed], 503)
  await startServer(t, { DATABASE_URL: distant.url, PORT: String(processPort) })

  const isServed = async (): Promise<boolean> => (await callerOf(port)('GET', '/livez')).status === 200
  await eventually('HAProxy to use the process', isServed)
  // HAProxy checks it some ten times meanwhile; the service asks the database in two of them.
  const served = await Promise.all(
    Array.from({ length: 50 }, async (_, number) => {
      await setTimeout(number * 50)
      return isServed()
    }),
  )
  t.notOk(served.includes(false), 'the process stays in use')
})

interface Proxy {
  /** Resolves when HAProxy has written that from now on. */
  says(text: string): Promise<void>
}

/** Resolves once the proxy answers `/readyz` with the status. */
async function startProxy(
  t: Test,
  port: number,
  [one = 0, two = 0]: number[],
  expectedStatus = 200,
): Promise<Proxy> {
  const program = (await pathOf('haproxy')) ?? 'haproxy'
  const child = spawn(program, ['-db', '-f', configuration], {
    env: { LISTEN: `127.0.0.1:${port}`, SERVER_1: `127.0.0.1:${one}`, SERVER_2: `127.0.0.1:${two}` },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGTERM')
    await ended
  })
  let waiting: { text: string; resolve: () => void }[] = []
  let line = ''
  child.stderr.on('data', (chunk) => {
    line += chunk
    const heard = waiting.filter(({ text }) => line.includes(text))
    waiting = waiting.filter((waiter) => !heard.includes(waiter))
    line = line.slice(line.lastIndexOf('\n') + 1)
    for (const { resolve } of heard) resolve()
  })
  const says = (text: string): Promise<void> =>
    new Promise((resolve, reject) => {
      waiting.push({ text, resolve })
      ended.then(() => reject(new Error(`HAProxy has ended without "${text}"`)), reject)
    })
  const answers = (): Promise<boolean> =>
    callerOf(port)('GET', '/readyz').then(
      ({ status }) => status === expectedStatus,
      () => false,
    )
  while (!(await answers())) {
    if (child.exitCode !== null) throw new Error(`HAProxy has ended with ${child.exitCode}`)
    await setTimeout(50)
  }
  return { says }
}
