import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { run, temporaryFolder } from '../support/program.ts'

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

t.test('a healthy service fires no alert at any offset between scrapes and evaluations', async (t) => {
  const offsets = Array.from({ length: 15 }, (_, offset) => offset)
  /** The time of the last look at the keys, two seconds before each scrape; the second of each sample is its place in the list. */
  const scrapes = (offset: number): string =>
    Array.from({ length: 300 }, (_, second) => (second % 15 === offset ? second - 2 : '_')).join(' ')
  const series = offsets.map((offset) => ({
    series: `inventory_api_keys_read_timestamp_seconds{job="petstore-inventory", instance="${offset}"}`,
    values: scrapes(offset),
  }))
  const alert_rule_test = [{ alertname: 'InventoryDatabaseAway', eval_time: '285s', exp_alerts: [] }]
  const tests = [{ interval: '1s', input_series: series, alert_rule_test }]
  const file = path.join(await temporaryFolder(t), 'offsets.test.yml')
  await writeFile(
    file,
    JSON.stringify({ rule_files: [path.resolve('ops/alerts.yml')], evaluation_interval: '15s', tests }),
  )
  t.match(await run(t, 'promtool', ['test', 'rules', file]).ended, { code: 0, stdout: /SUCCESS/ })
})
