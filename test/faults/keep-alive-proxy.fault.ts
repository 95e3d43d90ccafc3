import { Agent } from 'node:http'
import t, { type Test } from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json, type Send } from '../support/http.ts'
import { close, listRequest, updateRequest } from '../support/messages.ts'
import { freePort, startOtherProgram } from '../support/other-program.ts'
import type { Program } from '../support/program.ts'
import { responsesIn, sendRaw } from '../support/raw.ts'
import { apiKey, startServer } from '../support/running-server.ts'

interface Proxied {
  readonly server: Program
  /** The proxy's. */
  readonly port: number
  /** Sends over one connection that is kept, from an address of this machine that is not the proxy's. */
  readonly send: Send
  /** A counter of the proxy's for its connections to the service. */
  count(name: 'connect' | 'reuse'): Promise<number>
}

/** The service behind HAProxy, with the settings of the documentation and `options` for its front end. */
async function setUp(t: Test, env: Record<string, string>, options = ''): Promise<Proxied> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startServer(t, { DATABASE_URL: database.url, ...env })
  const target = server.port
  const [port, statistics] = [await freePort(), await freePort()]
  await startOtherProgram(t, 'haproxy', {
    args: ['-W', '-db', '-f'],
    ready: /Loading success/,
    config: `defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout http-request 10s
  timeout http-keep-alive 60s
  http-reuse safe
  retry-on conn-failure empty-response
frontend callers
  bind 127.0.0.1:${port}
  http-request set-header X-Forwarded-For %[src]
  default_backend inventory
${options}
backend inventory
  option httpchk GET /readyz
  default-server check inter 1s pool-purge-delay 30s
  server one 127.0.0.1:${target}
listen statistics
  bind 127.0.0.1:${statistics}
  stats enable
  stats uri /
`,
  })
  const agent = new Agent({ keepAlive: true, maxSockets: 1, localAddress: '127.0.0.2' })
  t.teardown(() => agent.destroy())
  return {
    server,
    port,
    send: callerOf(port, { authorization: `Bearer ${apiKey}` }, agent),
    async count(name) {
      const csv = (await callerOf(statistics)('GET', '/;csv')).text
      const [names = [], ...rows] = csv.split('\n').map((line) => line.split(','))
      const row = rows.find(([proxy, name]) => proxy === 'inventory' && name === 'one')
      return Number(row?.[names.indexOf(name)])
    },
  }
}

t.test('behind HAProxy, lists and updates use connections that are kept', async (t) => {
  const { send, count } = await setUp(t, { TRUST_PROXY: '127.0.0.1' })
  for (let quantity = 1; quantity <= 50; quantity++) {
    t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity }))).status, 200)
    const list = await send('GET', '/v1/inventory')
    t.equal(list.text, `[{"petId":1,"quantity":${quantity},"status":"available"}]`)
  }
  t.equal(await count('connect'), 1, 'the proxy has opened one connection')
  t.equal(await count('reuse'), 99, 'and used it for every request after the first')
})

t.test('behind HAProxy, pipelined requests are all answered, in order', async (t) => {
  const { port } = await setUp(t, {})
  const quantities = Array.from({ length: 200 }, (_, index) => index + 1)
  const updates = quantities.map((quantity) => updateRequest(quantity))
  const answers = responsesIn(await sendRaw(port, updates.join('') + listRequest(close)))
  t.strictSame(
    answers.map(({ status, body }) => [status, body]),
    [
      ...quantities.map((quantity) => [200, `{"petId":1,"quantity":${quantity},"status":"available"}`]),
      [200, '[{"petId":1,"quantity":200,"status":"available"}]'],
    ],
  )
})

t.test(
  'the log has the address of the caller where the proxy is trusted, whatever the caller says',
  async (t) => {
    const { send, server } = await setUp(t, { TRUST_PROXY: '127.0.0.1' })
    await send('GET', '/v1/inventory', { headers: { 'x-forwarded-for': '203.0.113.9' } })
    await server.output(/"client":"127\.0\.0\.2"/)
  },
)

t.test('and that of the proxy where it is not', async (t) => {
  const { send, server } = await setUp(t, {})
  await send('GET', '/v1/inventory')
  await server.output(/"client":"127\.0\.0\.1"/)
})

t.test('errors come through as they are', async (t) => {
  const { send } = await setUp(t, {})
  t.match(await send('PATCH', '/v1/inventory/2', json({ quantity: 1 })), { status: 404, text: /"not_found"/ })
  t.match(await send('PATCH', '/v1/inventory/1', json('{')), { status: 400, text: /"invalid_request"/ })
  t.match(await send('DELETE', '/v1/inventory/1'), { status: 405, text: /"method_not_allowed"/ })
  const large = json({ quantity: 1, padding: 'x'.repeat(5000) })
  t.match(await send('PATCH', '/v1/inventory/1', large), { status: 413, text: /"payload_too_large"/ })
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('the ETag of an update comes through a proxy that compresses, and serves as If-Match', async (t) => {
  const { send } = await setUp(t, {}, '  compression algo gzip\n  compression type application/json')
  const update = (quantity: number, condition: Record<string, string>): ReturnType<Send> => {
    const message = json({ quantity })
    return send('PATCH', '/v1/inventory/1', {
      ...message,
      headers: { ...message.headers, ...condition, 'accept-encoding': 'gzip' },
    })
  }
  const { headers } = await update(1, {})
  t.equal(headers.etag, '"1-available"')
  t.equal((await update(2, { 'if-match': headers.etag ?? '' })).status, 200)
})
