import { readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import t, { type Test } from 'tap'
import { addEntries, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { listen } from '../support/listen.ts'
import { type OtlpReceiver, startOtlpReceiver } from '../support/otlp-receiver.ts'
import { temporaryFolder } from '../support/program.ts'
import { openRaw } from '../support/raw.ts'
import { type Relay, startRelay } from '../support/relay.ts'
import { apiKey, type RunningServer, startServer } from '../support/running-server.ts'

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
const parentSpanId = '00f067aa0ba902b7'
const traceparent = `00-${traceId}-${parentSpanId}-01`

interface Traced {
  readonly database: TestDatabase
  readonly outage: Relay
  readonly collector: OtlpReceiver
  readonly server: RunningServer
}

async function startTraced(t: Test, env: Record<string, string> = {}): Promise<Traced> {
  const database = await testDatabase(t)
  const pets = Array.from({ length: 20 }, (_, index) => String(index + 1))
  await addEntries(
    database,
    pets.map((pet) => [pet, 9, 'available']),
  )
  const outage = await startRelay(t, database.url)
  const collector = await startOtlpReceiver(t)
  const server = await startServer(t, {
    DATABASE_URL: outage.url,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
    OTEL_BSP_SCHEDULE_DELAY: '100',
    ...env,
  })
  return { database, outage, collector, server }
}

const { database, outage, collector, server } = await startTraced(t)
const { send } = server
// Until the service knows the state of the table, it names the callers of an update to triggers, in a statement of its own.
let updates = 0
await eventually('the statement of a single update', async () => {
  await send('PATCH', '/v1/inventory/1', json({ quantity: 1 }))
  updates++
  return collector.spans.some(({ name }) => name === 'inventory_set_quantity') ? true : undefined
})
await collector.received('PATCH /v1/inventory/:petId', updates)
// Each test waits for all of its own.
t.beforeEach(() => collector.spans.splice(0))

t.test('a request goes on in the trace of its caller, and its statement and log lines with it', async (t) => {
  await send('PATCH', '/v1/inventory/1?token=hidden', {
    ...json({ quantity: 5 }),
    headers: { 'content-type': 'application/json', traceparent },
  })
  const [request] = await collector.received('PATCH /v1/inventory/:petId')
  const [statement] = await collector.received('inventory_set_quantity')
  t.match(request, {
    traceId,
    parentSpanId,
    kind: 2,
    status: 0,
    attributes: {
      'http.request.method': 'PATCH',
      'http.route': '/v1/inventory/:petId',
      'url.path': '/v1/inventory/1',
      'http.response.status_code': 200,
    },
    resource: {
      'service.name': 'petstore-inventory',
      'service.version': /^\d/,
      'service.instance.id': /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/,
    },
  })
  t.match(statement, {
    traceId,
    parentSpanId: request?.spanId,
    kind: 3,
    links: [],
    attributes: { 'db.system.name': 'postgresql', 'db.operation.name': 'UPDATE' },
  })
  await server.output(new RegExp(`"trace_id":"${traceId}","span_id":"${request?.spanId}".*"msg":"request"`))
})

t.test('a list has its statements, and probes make no spans', async (t) => {
  await send('GET', '/livez')
  await send('GET', '/readyz')
  await send('GET', '/v1/inventory')
  await send('GET', '/v1/inventory')
  await send('GET', '/v1/nothing')
  const [first, second] = await collector.received('GET /v1/inventory', 2)
  // A short list is read by a statement without a name.
  const [whole] = await collector.received('WITH')
  const [validator] = await collector.received('inventory_list_validator')
  t.match(whole, { traceId: first?.traceId, parentSpanId: first?.spanId })
  t.match(validator, { traceId: second?.traceId, parentSpanId: second?.spanId })
  t.match(await collector.received('GET'), [{ attributes: { 'http.response.status_code': 404 } }])
  t.notOk(collector.spans.some(({ name }) => /livez|readyz/.test(name)))
  t.notOk(
    collector.spans.some(
      ({ kind, attributes }) => kind === 3 && attributes['db.client.connection.pool.name'] === 'probe',
    ),
  )
})

t.test('updates that share a statement and that statement link to each other', async (t) => {
  const count = 100
  const requests = Array.from({ length: count }, (_, index) => {
    const own = `00-${(index + 1).toString(16).padStart(32, '0')}-${parentSpanId}-01`
    return (
      `PATCH /v1/inventory/${1 + (index % 20)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\ntraceparent: ${own}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{"quantity":3}'
    )
  })
  const sockets = await Promise.all(requests.map(async () => (await openRaw(server.port)).socket))
  // All at once, so that most of them wait.
  for (const [index, socket] of sockets.entries()) socket.write(requests[index] ?? '')
  const served = await collector.received('PATCH /v1/inventory/:petId', count)
  for (const socket of sockets) socket.destroy()
  t.equal(new Set(served.map(({ traceId }) => traceId)).size, count)
  await until('the spans of all updates', () => servedBy(collector).size === count)
  t.strictSame([...servedBy(collector)].sort(), served.map(({ spanId }) => spanId).sort())
  const shared = collector.spans.filter(({ kind, links }) => kind === 3 && links.length > 1)
  t.ok(shared.length > 0)
  for (const statement of shared) {
    t.equal(statement.parentSpanId, '', 'it is in a trace of its own')
    for (const { spanId } of statement.links) {
      const linked = served.find((request) => request.spanId === spanId)
      t.match(linked?.links, [{ traceId: statement.traceId, spanId: statement.spanId }])
    }
  }
})

/** The ids of the requests that the statements serve. */
function servedBy({ spans }: OtlpReceiver): Set<string> {
  const statements = spans.filter(({ kind }) => kind === 3)
  return new Set(
    statements.flatMap(({ parentSpanId, links }) =>
      parentSpanId === '' ? links.map(({ spanId }) => spanId) : parentSpanId,
    ),
  )
}

t.test('spans have no keys, values or messages of the database', async (t) => {
  await send('PATCH', '/v1/inventory/1?secret=in-the-query', json({ quantity: 1_234_567 }))
  await database.query('ALTER TABLE inventory ADD CONSTRAINT forbidden_number CHECK (quantity <> 7654321)')
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 7_654_321 }))).status, 400)
  const failed = (await collector.received('inventory_set_quantity', 2)).find(({ status }) => status === 2)
  t.equal(failed?.attributes['error.type'], '23514')
  await collector.received('PATCH /v1/inventory/:petId', 2)
  const sent = collector.bytes().toString('latin1')
  for (const hidden of [apiKey, 'in-the-query', 'forbidden_number', 'SET quantity', '1234567', '7654321']) {
    t.notOk(sent.includes(hidden), hidden)
  }
})

t.test('a request that the database fails is a failed span', async (t) => {
  outage.fail()
  t.equal((await send('GET', '/v1/inventory')).status, 503)
  const [request] = await collector.received('GET /v1/inventory')
  t.match(request, { status: 2, attributes: { 'error.type': '503', 'http.response.status_code': 503 } })
})

t.test('the standard variables say where to, as what and how many', async (t) => {
  const { collector, server } = await startTraced(t, {
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=shop',
    OTEL_SERVICE_NAME: 'stock',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test,service.instance.id=own',
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    // Nothing is sent before the stop.
    OTEL_BSP_SCHEDULE_DELAY: '60000',
  })
  await server.send('GET', '/v1/inventory')
  await server.send('GET', '/v1/inventory', { headers: { traceparent } })
  t.equal((await server.stop()).code, 0)
  const [request, ...others] = await collector.received('GET /v1/inventory')
  t.strictSame(others, [], 'only the one that its caller has sampled')
  t.match(request, {
    traceId,
    resource: {
      'service.name': 'stock',
      'deployment.environment.name': 'test',
      'service.instance.id': 'own',
    },
  })
  t.match(collector.headers, [{ 'x-tenant': 'shop' }])
})

t.test('a collector that does not answer holds up neither requests nor the stop', async (t) => {
  const port = await listen(
    t,
    createServer(() => {}),
  )
  const { server } = await startTraced(t, { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` })
  t.equal((await server.send('GET', '/v1/inventory')).status, 200)
  t.equal((await server.stop()).code, 0)
})

t.test('a failure to send is one line of the log without a stack trace, and so is its end', async (t) => {
  let status = 404
  let exports = 0
  const collector = createServer((request, response) => {
    request.resume().on('end', () => {
      exports += 1
      response.writeHead(status).end()
    })
  })
  const port = await listen(t, collector)
  const { server } = await startTraced(t, { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` })
  const exportMore = async (): Promise<void> => {
    const before = exports
    await server.send('GET', '/v1/inventory')
    await eventually('an export', async () => (exports > before ? true : undefined))
  }
  for (const next of [404, 404, 200, 200, 404]) {
    status = next
    await exportMore()
  }
  const { code, stdout } = await server.stop()
  t.equal(code, 0)
  const lines = stdout.split('\n').filter((line) => /traces can|OpenTelemetry|OTLP/.test(line))
  t.strictSame(
    lines.map((line) => JSON.parse(line)).map(({ msg, reason }) => [msg, reason]),
    [
      ['traces cannot be sent', 'the collector replied with 404 Not Found'],
      ['traces can be sent again', undefined],
      ['traces cannot be sent', 'the collector replied with 404 Not Found'],
    ],
  )
})

t.test('nothing of OpenTelemetry’s SDK is loaded if it is disabled', async (t) => {
  // Every script that was loaded is in the report of coverage.
  const folder = await temporaryFolder(t)
  const env = { NODE_V8_COVERAGE: folder, OTEL_BSP_SCHEDULE_DELAY: '1', OTEL_SDK_DISABLED: 'true' }
  const { collector, server } = await startTraced(t, env)
  await server.send('GET', '/v1/inventory', { headers: { traceparent } })
  const { code, stdout } = await server.stop()
  t.equal(code, 0)
  const [report = ''] = await readdir(folder)
  const { result }: { result: readonly { url: string }[] } = JSON.parse(
    await readFile(path.join(folder, report), 'utf8'),
  )
  const loaded = result.map(({ url }) => url).join('\n')
  t.match(loaded, /node_modules\/pg\//, 'what is loaded is listed')
  t.notMatch(loaded, /sdk-trace/)
  t.notMatch(stdout, /trace_id/)
  t.strictSame(collector.spans, [])
})
