import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { giveTo, serverAccount } from '../support/account.ts'
import { succeed } from '../support/command.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { metricsOf } from '../support/metrics.ts'
import { freePort, startOtherProgram } from '../support/other-program.ts'
import { run, temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'
import { startServer } from '../support/running-server.ts'
import { pathOf } from './needs.ts'

const promtool = (await pathOf('promtool')) ?? ''

/** A Prometheus that scrapes a target every second and evaluates the rules as often. */
interface Prometheus {
  /** The alerts that are pending or firing. */
  active(): Promise<string[]>
  /** The rules that cannot be evaluated, with the reason. */
  broken(): Promise<string[]>
  /** The number that a query gives; NaN where it gives none. */
  value(query: string): Promise<number>
}

async function startPrometheus(t: Test, target: string): Promise<Prometheus> {
  const folder = await temporaryFolder(t)
  await giveTo(serverAccount(), folder)
  const port = await freePort()
  await startOtherProgram(t, 'prometheus', {
    args: [`--storage.tsdb.path=${folder}/data`, `--web.listen-address=127.0.0.1:${port}`, '--config.file'],
    ready: /Server is ready/,
    config: JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [path.resolve('ops/alerts.yml')],
      scrape_configs: [{ job_name: 'petstore-inventory', static_configs: [{ targets: [target] }] }],
    }),
  })
  const ask = callerOf(port)
  const get = async <Data>(path: string): Promise<Data> =>
    JSON.parse((await ask('GET', `/api/v1/${path}`)).text).data
  return {
    async active() {
      const { alerts } = await get<{ alerts: { labels: { alertname: string } }[] }>('alerts')
      return [...new Set(alerts.map(({ labels }) => labels.alertname))].sort()
    },
    async broken() {
      const { groups } = await get<{
        groups: { rules: { name: string; health: string; lastError?: string }[] }[]
      }>('rules')
      return groups
        .flatMap(({ rules }) => rules)
        .filter(({ health }) => health !== 'ok')
        .map(({ name, health, lastError }) => `${name}: ${health} ${lastError}`)
    },
    async value(query) {
      const { result } = await get<{ result: { value: [number, string] }[] }>(
        `query?query=${encodeURIComponent(query)}`,
      )
      return Number(result[0]?.value[1])
    },
  }
}

t.test('promtool finds no error in the rules, and their own tests pass', async (t) => {
  for (const args of [
    ['check', 'rules', 'ops/alerts.yml'],
    ['test', 'rules', 'ops/alerts.test.yml'],
  ])
    t.match(await run(t, promtool, args).ended, { code: 0, stdout: /SUCCESS/ })
})

t.test('every rule has a test of its own', async (t) => {
  const alerts = (await readFile('ops/alerts.yml', 'utf8')).matchAll(/alert: (\w+)/g)
  const tests = await readFile('ops/alerts.test.yml', 'utf8')
  for (const [, alert] of alerts) t.match(tests, new RegExp(`alertname: ${alert}\\n[^-]*exp_alerts:\\n`))
})

t.test('promtool understands the metrics', async (t) => {
  const database = await testDatabase(t)
  const server = await startServer(t, { DATABASE_URL: database.url, METRICS_PORT: '0' })
  const { send } = await metricsOf(server)
  await callerOf(server.port)('GET', '/v1/inventory')
  const input = (await send('GET', '/metrics')).body
  const { stdout, stderr } = await run(t, promtool, ['check', 'metrics'], { input }).ended
  // OpenTelemetry calls it so; promtool would keep the ending for histograms.
  t.match(stdout + stderr, /^db_client_connection_count non-histogram[^\n]*\n$/)
})

t.test('Prometheus evaluates every rule against the service, and alerts follow what happens', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  await succeed(t, database.url, 'migrate', 'up', '--server-role', role.name)
  const outage = await startRelay(t, role.urlOf(database.url))
  const server = await startServer(t, { DATABASE_URL: outage.url, METRICS_PORT: '0' })
  const [, metricsPort] = await server.output(/metrics at http:\/\/[^:]+:(\d+)/)
  const prometheus = await startPrometheus(t, `127.0.0.1:${metricsPort}`)
  const request = server.send

  const requests = 'sum(rate(http_server_request_duration_seconds_count{http_route=~"/v1/.*"}[1m]))'
  while (!((await prometheus.value(requests)) > 0)) {
    await request('GET', '/v1/inventory')
    await request('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
  }
  while ((await prometheus.broken()).length > 0) await setTimeout(100)
  // Before the first scrape, the process counts as down.
  while ((await prometheus.active()).length > 0) await setTimeout(100)

  const isAlerted = async (...alerts: string[]): Promise<boolean> => {
    const active = await prometheus.active()
    return alerts.every((alert) => active.includes(alert))
  }

  await database.query(`REVOKE SELECT ON pgmigrations FROM ${role.name}`)
  while (!(await isAlerted('InventoryNotReady'))) await setTimeout(100)
  t.equal(
    await prometheus.value('inventory_not_ready{reason="privileges"}'),
    1,
    'a missing privilege is reported',
  )
  await database.query(`GRANT SELECT ON pgmigrations TO ${role.name}`)
  while (await isAlerted('InventoryNotReady')) await setTimeout(100)

  outage.fail()
  while (!(await isAlerted('InventoryErrors', 'InventoryDatabaseAway', 'InventoryNotReady')))
    await request('GET', '/v1/inventory')
  t.pass('an outage of the database is reported')
  await outage.restore()
  while (await isAlerted('InventoryDatabaseAway')) await setTimeout(100)
  t.pass('so is its end')

  server.process.kill('SIGKILL')
  while (!(await isAlerted('InventoryDown'))) await setTimeout(100)
  t.pass('a process that is gone is reported')
  t.strictSame(await prometheus.broken(), [])
})
