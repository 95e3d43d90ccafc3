import { createServer, type IncomingHttpHeaders } from 'node:http'
import { text } from 'node:stream/consumers'
import { inspect } from 'node:util'
import { SpanKind, SpanStatusCode } from '@opentelemetry/api'
import { InMemorySpanExporter, type ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { pino } from 'pino'
import t from 'tap'
import { startTracing } from '../../src/tracing/tracing.ts'
import { tracingSettings } from '../../src/tracing/variables.ts'
import { apiKey, startApp } from '../support/app.ts'
import { testDatabase } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import { listen } from '../support/ports.ts'
import { startServer } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
const parentSpanId = '00f067aa0ba902b7'
const UPDATE = 'PATCH /v1/inventory/:petId'

process.env['OTEL_BSP_SCHEDULE_DELAY'] = '50'
const exporter = new InMemorySpanExporter()
const tracing = startTracing('1.2.3', pino({ level: 'silent' }), exporter)
const database = await testDatabase(t, { entries: 20 })
const outage = await startRelay(t, database.url)
const { send, update, log } = await startApp(t, outage.url, { tracing })
t.teardown(() => tracing.close())

const findId = (span: ReadableSpan | undefined): string | undefined => span?.spanContext().spanId

/** Waits for that many spans with a name. */
async function received(name: string, count = 1): Promise<ReadableSpan[]> {
  const found = (): ReadableSpan[] => exporter.getFinishedSpans().filter((span) => span.name === name)
  await until(`${count} spans ${name}`, () => found().length >= count)
  return found()
}

/** The statements that have ended. */
const statements = () => exporter.getFinishedSpans().filter(({ kind }) => kind === SpanKind.CLIENT)

const ofTrace = (trace: string) => ({ traceparent: `00-${trace}-${parentSpanId}-01` })

t.beforeEach(() => exporter.reset())

t.test('traces only where the variables of OpenTelemetry ask for it', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
  for (const [expected, env] of [
    [false, {}],
    [true, endpoint],
    [true, { OTEL_TRACES_EXPORTER: 'console, otlp' }],
    [false, { ...endpoint, OTEL_TRACES_EXPORTER: 'console' }],
    [true, { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318' }],
    [true, { ...endpoint, OTEL_SDK_DISABLED: 'false', OTEL_TRACES_EXPORTER: '' }],
    [false, { ...endpoint, OTEL_SDK_DISABLED: 'TRUE' }],
    [false, { ...endpoint, OTEL_TRACES_EXPORTER: 'none' }],
    [false, { OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }],
  ] as const)
    t.equal(tracingSettings(env).isEnabled, expected, JSON.stringify(env))
})

t.test('what the exporter would drop is an error that names the variable, and not its value', async (t) => {
  const addresses = ['secret:4318', '10.0.0.5:4318', 'grpc://secret', 'http://secret ', 'http://:1']
  const headers = ['secret', 'a=', '=secret', 'a=b,secret', 'a=%zz', 'a=1;secret', 'a b=c', 'a=%0A']
  for (const prefix of ['OTEL_EXPORTER_OTLP_', 'OTEL_EXPORTER_OTLP_TRACES_']) {
    for (const [suffix, expected, values] of [
      ['ENDPOINT', 'an address', addresses],
      ['HEADERS', '.* name=value', headers],
    ] as const) {
      const name = `${prefix}${suffix}`
      for (const value of values) {
        const { errors } = tracingSettings({ OTEL_TRACES_EXPORTER: 'otlp', [name]: value })
        t.match(errors, [new RegExp(`^${name} must be ${expected}`)], value)
        t.equal(errors.length, 1, value)
        t.notMatch(errors.join(), 'secret', value)
        t.strictSame(tracingSettings({ OTEL_TRACES_EXPORTER: 'none', [name]: value }).errors, [])
      }
    }
    const usable = {
      OTEL_TRACES_EXPORTER: 'otlp',
      [`${prefix}ENDPOINT`]: 'https://user:password@[::1]:4318/otlp',
      [`${prefix}HEADERS`]: 'authorization=Basic%20eA==, x-tenant = shop 7 ,',
      [`${prefix}PROTOCOL`]: 'grpc',
    }
    t.strictSame(tracingSettings(usable), { isEnabled: true, errors: [] })
  }
})

t.test('a request goes on in the trace of its caller, and its statement and log lines with it', async (t) => {
  await update('1?token=hidden', 5, ofTrace(traceId))
  const [request] = await received(UPDATE)
  t.match(request, {
    kind: SpanKind.SERVER,
    status: { code: SpanStatusCode.UNSET },
    parentSpanContext: { traceId, spanId: parentSpanId },
    attributes: {
      'http.request.method': 'PATCH',
      'http.route': '/v1/inventory/:petId',
      'url.path': '/v1/inventory/1',
      'http.response.status_code': 200,
    },
  })
  t.match(request?.resource.attributes, {
    'service.name': 'petstore-inventory',
    'service.version': '1.2.3',
    'service.instance.id': /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/,
  })
  const statement = statements().at(-1)
  t.match(statement, {
    name: /^inventory_set_quantit/,
    parentSpanContext: { traceId, spanId: findId(request) },
    attributes: { 'db.system.name': 'postgresql', 'db.operation.name': /^(UPDATE|WITH)$/ },
  })
  t.strictSame(statement?.links, [])
  const line = log.find(({ trace_id }) => trace_id === traceId)
  t.match(line, { msg: 'request', span_id: findId(request) })
})

t.test('a list has its statements, and health checks make no spans', async (t) => {
  for (const path of ['/livez', '/readyz', '/v1/inventory', '/v1/inventory', '/v1/nothing'])
    await send('GET', path)
  const lists = await received('GET /v1/inventory', 2)
  for (const list of lists)
    t.ok(statements().some(({ parentSpanContext }) => parentSpanContext?.spanId === findId(list)))
  t.match(await received('GET'), [{ attributes: { 'http.response.status_code': 404 } }])
  t.notOk(exporter.getFinishedSpans().some(({ name }) => /livez|readyz/.test(name)))
  t.notOk(statements().some(({ attributes }) => attributes['db.client.connection.pool.name'] === 'probe'))
})

t.test('updates that share a statement and that statement link to each other', async (t) => {
  const count = 100
  // All at once, so that most of them wait.
  const updates = Array.from({ length: count }, (_, index) =>
    update(1 + (index % 20), 3, ofTrace((index + 1).toString(16).padStart(32, '0'))),
  )
  await Promise.all(updates)
  const served = await received(UPDATE, count)
  t.equal(new Set(served.map((span) => span.spanContext().traceId)).size, count)
  // Each request by the statements that serve it.
  const servedBy = statements().flatMap(({ parentSpanContext, links }) =>
    parentSpanContext === undefined ? links.map(({ context }) => context.spanId) : parentSpanContext.spanId,
  )
  t.strictSame([...new Set(servedBy)].sort(), served.map(findId).sort())
  const shared = statements().filter(({ links }) => links.length > 1)
  t.ok(shared.length > 0)
  for (const statement of shared) {
    t.equal(statement.parentSpanContext, undefined, 'it is in a trace of its own')
    for (const { context } of statement.links) {
      const linked = served.find((request) => findId(request) === context.spanId)
      t.match(linked?.links, [{ context: { spanId: findId(statement) } }])
    }
  }
})

t.test('spans have no keys, values or messages of the database', async (t) => {
  await update('1?secret=in-the-query', 1_234_567)
  await database.query('ALTER TABLE inventory ADD CONSTRAINT forbidden_number CHECK (quantity <> 7654321)')
  t.equal((await update(1, 7_654_321)).status, 400)
  await received(UPDATE, 2)
  const failed = statements().find(({ status }) => status.code === SpanStatusCode.ERROR)
  t.equal(failed?.attributes['error.type'], '23514')
  const spans = inspect(exporter.getFinishedSpans(), { depth: null, maxStringLength: null })
  t.match(spans, 'url.path')
  for (const hidden of [apiKey, 'in-the-query', 'forbidden_number', 'SET quantity', '1234567', '7654321'])
    t.notOk(spans.includes(hidden), hidden)
})

t.test('a request that the database fails is a failed span', async (t) => {
  outage.fail()
  t.equal((await send('GET', '/v1/inventory')).status, 503)
  const failed = { status: { code: SpanStatusCode.ERROR }, attributes: { 'error.type': '503' } }
  t.match(await received('GET /v1/inventory'), [failed])
})

t.test('standard variables say where to, as what and how many; no stop waits for an answer', async (t) => {
  const exports: { readonly headers: IncomingHttpHeaders; readonly text: string }[] = []
  const collector = createServer(async (request) => {
    exports.push({ headers: request.headers, text: await text(request) })
  })
  const server = await startServer(t, {
    DATABASE_URL: (await testDatabase(t)).url,
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await listen(t, collector)}`,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=shop',
    OTEL_SERVICE_NAME: 'stock',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test-place,service.instance.id=own-name',
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    // Nothing is sent before the stop.
    OTEL_BSP_SCHEDULE_DELAY: '60000',
  })
  await server.send('GET', '/v1/inventory')
  await server.send('GET', '/v1/inventory?secret=in-the-query', { headers: ofTrace(traceId) })
  t.equal((await server.stop()).code, 0)
  t.match(exports, [{ headers: { 'x-tenant': 'shop', 'content-type': 'application/x-protobuf' } }])
  const sent = exports.map(({ text }) => text).join('')
  for (const name of ['stock', 'test-place', 'own-name']) t.match(sent, name)
  t.equal(sent.split('GET /v1/inventory').length, 2, 'only the one that its caller has sampled')
  for (const hidden of [apiKey, 'in-the-query']) t.notMatch(sent, hidden)
})
