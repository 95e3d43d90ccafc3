import { createServer, type IncomingHttpHeaders } from 'node:http'
import t, { type Test } from 'tap'
import { testDatabase } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import { listen } from '../support/ports.ts'
import { apiKey, startServer } from '../support/program.ts'

const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'

/** Starts the service with a collector that keeps its traces, and answers, or not. */
async function startTraced(t: Test, env: Record<string, string> = {}) {
  const exports: { readonly headers: IncomingHttpHeaders; readonly text: string }[] = []
  const collector = { exports, answers: true }
  const http = createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString('latin1')
    collector.exports.push({ headers: request.headers, text })
    if (collector.answers) response.end()
  })
  const server = await startServer(t, {
    DATABASE_URL: (await testDatabase(t)).url,
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await listen(t, http)}`,
    OTEL_BSP_SCHEDULE_DELAY: '100',
    ...env,
  })
  return { collector, server }
}

t.test('the standard variables say where to, as what and how many', async (t) => {
  const { collector, server } = await startTraced(t, {
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=shop',
    OTEL_SERVICE_NAME: 'stock',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test-place,service.instance.id=own-name',
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    // Nothing is sent before the stop.
    OTEL_BSP_SCHEDULE_DELAY: '60000',
  })
  await server.send('GET', '/v1/inventory')
  await server.send('GET', '/v1/inventory?secret=in-the-query', { headers: { traceparent } })
  t.equal((await server.stop()).code, 0)
  t.match(collector.exports, [{ headers: { 'x-tenant': 'shop', 'content-type': 'application/x-protobuf' } }])
  const text = collector.exports.map((sent) => sent.text).join('')
  for (const sent of ['stock', 'test-place', 'own-name']) t.match(text, sent)
  t.equal(text.split('GET /v1/inventory').length, 2, 'only the one that its caller has sampled')
  for (const hidden of [apiKey, 'in-the-query']) t.notMatch(text, hidden)
})

t.test('a collector that does not answer holds up neither requests nor the stop', async (t) => {
  const { collector, server } = await startTraced(t)
  collector.answers = false
  t.equal((await server.send('GET', '/v1/inventory')).status, 200)
  await until('an export', () => collector.exports.length > 0)
  t.equal((await server.send('GET', '/v1/inventory')).status, 200)
  t.equal((await server.stop()).code, 0)
})
