import t from 'tap'
import { apiKey, longLimits, shortWaits, startApp, startService } from '../support/app.ts'
import { testDatabase, testRole } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import type { Answer } from '../support/http.ts'
import { findSamples } from '../support/metrics.ts'
import { parseResponse, sendRaw } from '../support/raw.ts'
import { startRelay } from '../support/relay.ts'

t.test('each request has one log line, without its query and its key, also a malformed one', async (t) => {
  const { port, send, update, log, close } = await startService(t, ['1,9,available'])
  const headers = { 'x-forwarded-for': '203.0.113.9' }
  await update('1?token=secret', 5)
  await update(2, 5)
  await send('GET', '/v1/nothing', { headers })
  await send('GET', `/${'x'.repeat(5000)}`)
  await send('POST', '/v1/inventory')
  await send('GET', '/v1/inventory/%zz')
  const malformed = parseResponse(await sendRaw(port, 'no HTTP\r\n\r\n'))
  await close()
  const lines = log.filter(({ msg }) => msg === 'request')
  const logged = lines.map(({ method, route, path, status, key }) => [method, route, path, status, key])
  t.strictSame(logged, [
    ['PATCH', '/v1/inventory/:petId', '/v1/inventory/1', 200, 'tests'],
    ['PATCH', '/v1/inventory/:petId', '/v1/inventory/2', 404, 'tests'],
    ['GET', null, '/v1/nothing', 404, 'tests'],
    ['GET', null, `/${'x'.repeat(255)}`, 404, null],
    ['POST', null, '/v1/inventory', 405, 'tests'],
    ['GET', null, '/v1/inventory/%zz', 400, null],
  ])
  for (const line of lines) t.match(line, { durationMs: Number, client: '127.0.0.1' })
  const requestId = malformed.headers['x-request-id']
  const refusal = log.find(({ msg }) => msg === 'malformed request refused')
  t.match(refusal, { requestId, status: 400, reason: 'HPE_INVALID_METHOD', client: '127.0.0.1' })
  t.notMatch(JSON.stringify(log), /secret/)
  t.notMatch(JSON.stringify(log), apiKey)
})

t.test('the log has the address in X-Forwarded-For if it comes from a trusted proxy', async (t) => {
  const { send, log, close } = await startService(t, [], { env: { TRUST_PROXY: '127.0.0.0/8' } })
  await send('GET', '/v1/inventory', { headers: { 'x-forwarded-for': '203.0.113.9' } })
  await close()
  t.equal(log.find(({ msg }) => msg === 'request')?.['client'], '203.0.113.9')
})

/** How long a list that cannot be served waits, and far longer than one that can be served takes. */
const LIMIT_MS = 5000

t.test('the log and a metric have the cause of each 503', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  await database.query(`GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  const outage = await startRelay(t, role.toUrl(database.url))
  const timings = { lists: { ...longLimits.lists, answer: LIMIT_MS }, app: shortWaits.app }
  const app = await startApp(t, outage.url, { timings })
  const { send, log } = app
  const lastLine = (): unknown => log.findLast(({ msg }) => msg === 'request')
  const list = (): Promise<Answer> => send('GET', '/v1/inventory')
  const update = (): Promise<Answer> => app.update(1, 5)
  const isRefused = async (request: () => Promise<Answer>, cause: string, reason: RegExp): Promise<void> => {
    const lines = log.length
    t.equal((await request()).status, 503, cause)
    await until('the line of the request', () => log.slice(lines).some(({ msg }) => msg === 'request'))
    t.match(lastLine(), { status: 503, cause, reason })
  }
  t.equal((await update()).status, 200)
  t.notMatch(lastLine(), { cause: /./ })

  const release = await database.hold('UPDATE inventory SET quantity = 1')
  await isRefused(update, 'locked', /^Another transaction has locked the entry or the whole inventory\./)
  await release()
  t.equal((await list()).status, 200)
  outage.stall()
  await isRefused(list, 'late', /^PostgreSQL did not respond in time$/)
  await outage.restore()
  outage.fail()
  await isRefused(update, 'database_unreachable', /ECONNREFUSED/)
  t.equal((await send('GET', '/readyz')).status, 503)
  await database.query(`ALTER ROLE ${role.name} SET default_transaction_read_only = on`)
  await outage.restore()
  await isRefused(update, 'read_only', /^the server is read-only/)
  const counted = findSamples(await app.scrape(), 'inventory_unavailable_total')
  const causes = counted.map(({ labels, value }) => `${labels['cause']} ${value}`)
  t.strictSame(causes, ['locked 1', 'late 1', 'database_unreachable 1', 'not_ready 1', 'read_only 1'])
})
