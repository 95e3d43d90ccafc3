import { readFile } from 'node:fs/promises'
import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { callerOf } from '../support/http.ts'
import { metricsOf } from '../support/metrics.ts'
import { run } from '../support/program.ts'
import { startServer } from '../support/running-server.ts'

t.test('promtool finds no error in the rules, and their own tests pass', async (t) => {
  for (const args of [
    ['check', 'rules', 'ops/alerts.yml'],
    ['test', 'rules', 'ops/alerts.test.yml'],
  ])
    t.match(await run(t, 'promtool', args).ended, { code: 0, stdout: /SUCCESS/ })
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
  const { stdout, stderr } = await run(t, 'promtool', ['check', 'metrics'], { input }).ended
  // OpenTelemetry calls it so; promtool would keep the ending for histograms.
  t.match(stdout + stderr, /^db_client_connection_count non-histogram[^\n]*\n$/)
})
