import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { startBalancer } from '../support/balancer.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { contradictionIn } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { freePort } from '../support/other-program.ts'
import { startRelay } from '../support/relay.ts'
import { type RunningServer, startServer } from '../support/running-server.ts'

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
    const proxy = await startBalancer(t, { servers: [one.port, two.port] })
    const { port } = proxy
    const loads = [
      startLoad(t, { ports: [port], clients: 12, pets: [1] }),
      startLoad(t, { ports: [port], clients: 12, pets: [2], keepAlive: false }),
    ]

    for (const place of [one, two, one, two]) {
      await Promise.all(loads.map((load) => load.served(300)))
      const server = servers.get(place)
      const left = proxy.says(`Server inventory/${place.name} is stopping`)
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
  const { port } = await startBalancer(t, { servers: [await freePort()], expectedStatus: 503 })

  const { status, headers, text } = await callerOf(port)('GET', '/v1/inventory')
  isError(t, { status, headers, body: text }, 503, 'service_unavailable')
  t.equal(headers['retry-after'], '1')
})

t.test('HAProxy uses a process whose readiness check takes longer than its interval', async (t) => {
  const { url } = await testDatabase(t)
  const distant = await startRelay(t, url, { towardsDatabase: (bytes) => setTimeout(150, bytes) })
  const [processPort, closed] = [await freePort(), await freePort()]
  // HAProxy uses each server until checks have failed. This one has to pass a check.
  const { port } = await startBalancer(t, { servers: [processPort, closed], expectedStatus: 503 })
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
