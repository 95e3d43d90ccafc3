import { Agent } from 'node:http'
import t from 'tap'
import { startBalancer } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf, isError, json } from '../support/http.ts'
import { contradictionIn } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { freePort } from '../support/ports.ts'
import { apiKey, type RunningServer, startServer } from '../support/program.ts'

t.test('two processes behind HAProxy are restarted one after the other', async (t) => {
  const database = await testDatabase(t, { entries: 2 })
  const start = (port: number): Promise<RunningServer> =>
    startServer(t, { DATABASE_URL: database.url, PORT: String(port) })
  const ports = [await freePort(), await freePort()] as const
  const servers = [await start(ports[0]), await start(ports[1])]
  const { port, output } = await startBalancer(t, ports)
  const loads = [
    startLoad(t, { ports: [port], clients: 12, pets: [1] }),
    startLoad(t, { ports: [port], clients: 12, pets: [2], keepAlive: false }),
  ]
  const served = (): Promise<unknown> => Promise.all(loads.map((load) => load.served(300)))
  for (const round of [1, 2]) {
    for (const [index, server] of servers.entries()) {
      await served()
      t.match(await server.stop(), { code: 0 })
      servers[index] = await start(server.port)
      const name = index === 0 ? 'one' : 'two'
      await output(new RegExp(`(?:Server inventory/${name} is UP[^]*){${round}}`))
    }
  }
  await served()
  await Promise.all(loads.map((load) => load.stop()))
  t.strictSame(
    loads.flatMap((load) => load.failures),
    [],
  )
  for (const [index, load] of loads.entries())
    t.equal(contradictionIn(load.historyOf(index + 1), 0), undefined)
})

t.test('errors of the service and the address of the caller come through HAProxy', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const server = await startServer(t, { DATABASE_URL: database.url, TRUST_PROXY: '127.0.0.1' })
  const { port } = await startBalancer(t, [server.port])
  const headers = { authorization: `Bearer ${apiKey}`, 'x-forwarded-for': '203.0.113.9' }
  const send = callerOf(port, headers, new Agent({ localAddress: '127.0.0.2' }))
  isError(t, await send('PATCH', '/v1/inventory/1', json('{')), 400, 'invalid_request')
  isError(t, await send('DELETE', '/v1/inventory/1'), 405, 'method_not_allowed')
  isError(t, await send('PATCH', '/v1/inventory/1', json('x'.repeat(5000))), 413, 'payload_too_large')
  await server.output(/"client":"127\.0\.0\.2"/)
})

t.test('while no process is ready, HAProxy answers with the one error body and Retry-After', async (t) => {
  const { port } = await startBalancer(t, [await freePort(), await freePort()])
  const answer = await callerOf(port)('GET', '/v1/inventory')
  isError(t, answer, 503, 'service_unavailable')
  t.equal(answer.headers['retry-after'], '1')
})
