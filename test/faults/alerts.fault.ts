import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import t, { type Test } from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { metricsOf } from '../support/metrics.ts'
import { freePort } from '../support/other-program.ts'
import { outageOf } from '../support/outage.ts'
import { startProgram, temporaryFolder } from '../support/program.ts'
import { testRole } from '../support/roles.ts'
import { startServer } from '../support/running-server.ts'
import { pathOf } from './needs.ts'

const run = promisify(execFile)
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

const Alerts = Type.Object({
  data: Type.Object({
    alerts: Type.Array(Type.Object({ labels: Type.Object({ alertname: Type.String() }) })),
  }),
})
const Rules = Type.Object({
  data: Type.Object({
    groups: Type.Array(
      Type.Object({
        rules: Type.Array(
          Type.Object({
            name: Type.String(),
            health: Type.String(),
            lastError: Type.Optional(Type.String()),
          }),
        ),
      }),
    ),
  }),
})
const Vector = Type.Object({
  data: Type.Object({
    result: Type.Array(Type.Object({ value: Type.Tuple([Type.Number(), Type.String()]) })),
  }),
})

async function startPrometheus(t: Test, target: string): Promise<Prometheus> {
  const folder = await temporaryFolder(t)
  const rules = path.resolve('ops/alerts.yml')
  await writeFile(
    path.join(folder, 'prometheus.yml'),
    JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [rules],
      scrape_configs: [{ job_name: 'petstore-inventory', static_configs: [{ targets: [target] }] }],
    }),
  )
  const port = await freePort()
  const child: ChildProcess = spawn(
    (await pathOf('prometheus')) ?? '',
    [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: 'ignore' },
  )
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const ask = callerOf(port)
  const get = async (url: string): Promise<unknown> => JSON.parse((await ask('GET', url)).text)
  const isReady = (): Promise<boolean> =>
    ask('GET', '/-/ready').then(
      ({ status }) => status === 200,
      () => false,
    )
  while (!(await isReady())) await setTimeout(100)
  return {
    async active() {
      const { data } = Value.Parse(Alerts, await get('/api/v1/alerts'))
      return [...new Set(data.alerts.map(({ labels }) => labels.alertname))].sort()
    },
    async broken() {
      const { data } = Value.Parse(Rules, await get('/api/v1/rules'))
      return data.groups
        .flatMap(({ rules }) => rules)
        .filter(({ health }) => health !== 'ok')
        .map(({ name, health, lastError }) => `${name}: ${health} ${lastError}`)
    },
    async value(query) {
      const { data } = Value.Parse(Vector, await get(`/api/v1/query?query=${encodeURIComponent(query)}`))
      return Number(data.result[0]?.value[1])
    },
  }
}

t.test('promtool finds no error in the rules, and their own tests pass', async (t) => {
  t.match((await run(promtool, ['check', 'rules', 'ops/alerts.yml'])).stdout, /SUCCESS/)
  t.match((await run(promtool, ['test', 'rules', 'ops/alerts.test.yml'])).stdout, /SUCCESS/)
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
  const check = spawn(promtool, ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [check.stdout, check.stderr]) stream.on('data', (text) => (said += text))
  check.stdin.end((await send('GET', '/metrics')).body)
  await once(check, 'close')
  // OpenTelemetry calls it so; promtool would keep the ending for histograms.
  t.match(said, /^db_client_connection_count non-histogram[^\n]*\n$/)
})

t.test('Prometheus evaluates every rule against the service, and alerts follow what happens', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const migrate = await startProgram(t, 'cli', {
    args: ['migrate', 'up', '--server-role', role.name],
    env: { DATABASE_URL: database.url },
  })
  t.equal((await migrate.ended).code, 0)
  const outage = await outageOf(t, role.urlOf(database.url))
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
  t.strictSame(await prometheus.active(), [])

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

  await outage.cut()
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
