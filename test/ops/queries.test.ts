import { readFile } from 'node:fs/promises'
import { parser } from '@prometheus-io/lezer-promql'
import t from 'tap'
import { parse } from 'yaml'
import { readPages } from '../docs/pages.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { connectToMetrics, parseSamples } from '../support/metrics.ts'
import { startServer } from '../support/program.ts'
import { sendRaw } from '../support/raw.ts'

/** The rows of the tables in docs/metrics.md. */
async function documented() {
  const page = await readFile('docs/metrics.md', 'utf8')
  const rows = page.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\| ([^|]+) \|$/gm)
  const here = [...rows].filter((row) => process.platform === 'linux' || !row[4]?.endsWith('; on Linux'))
  const labelsIn = (cell: string): string[] =>
    Array.from(cell.matchAll(/`(\w+)`/g), ([, label = '']) => label)
  return new Map(
    here.map(([, name = '', type = '', labels = '']) => [name, { type, labels: labelsIn(labels).sort() }]),
  )
}

/** The names of the metrics that a query asks for, and the labels that it chooses or groups by. */
function askedIn(query: string): { metrics: string[]; labels: string[] } {
  const metrics: string[] = []
  const labels: string[] = []
  // Grafana puts intervals in place of its variables; those in strings are as good as any other text.
  const expression = query.replaceAll('$__rate_interval', '5m')
  parser.parse(expression).iterate({
    enter({ from, to, name, type }) {
      if (type.isError) throw new Error(`This is no PromQL: ${query}`)
      if (name === 'Identifier') metrics.push(expression.slice(from, to))
      if (name === 'LabelName') labels.push(expression.slice(from, to))
    },
  })
  return { metrics, labels }
}

/** Every alert, and every part of the dashboard that has a query. */
async function queries(): Promise<{ expr: string; [name: string]: unknown }[]> {
  const found: { expr: string }[] = []
  const collect = (_: unknown, value: unknown): unknown => {
    if (Object(value).expr !== undefined) found.push(Object(value))
    return value
  }
  parse(await readFile('ops/alerts.yml', 'utf8'), collect)
  JSON.parse(await readFile('ops/dashboard.json', 'utf8'), collect)
  return found
}

t.test('docs/metrics.md lists every metric of the service, with its type and labels', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  await addKey(database, 'billing', '1 day')
  const server = await startServer(t, { DATABASE_URL: database.url, METRICS_PORT: '0' })
  const metrics = await connectToMetrics(server)
  const { port, send } = server
  await send('GET', '/v1/inventory')
  await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
  await sendRaw(port, 'no HTTP\r\n\r\n')
  await database.query('ALTER TABLE inventory RENAME TO away')
  await eventually('a 503', async () => (await send('GET', '/readyz')).status === 503)
  await database.query('ALTER TABLE away RENAME TO inventory')
  // The kinds of garbage collection appear only after the first one, and entries where they were counted in time.
  const text = await eventually('all metrics', async () => {
    const { text } = await metrics.send('GET', '/metrics')
    return /^nodejs_gc_duration_seconds_count/m.test(text) && /^inventory_entries\{/m.test(text) && text
  })
  const pages = await documented()
  const found: typeof pages = new Map()
  const served = text.matchAll(/^# HELP (\w+) \w.*\n# TYPE \1 (\w+)\n([^#]*)/gm)
  for (const [, name = '', type = '', lines = ''] of served) {
    const labels = new Set(parseSamples(lines).flatMap((sample) => Object.keys(sample.labels)))
    labels.delete('le')
    // Those of Node.js and of the process are prom-client's; the page has only what alerts and the dashboard use.
    if (pages.has(name) || !/^(nodejs|process)_/.test(name))
      found.set(name, { type, labels: [...labels].sort() })
  }
  t.strictSame(found, pages)
})

t.test('alerts and dashboard ask for nothing that does not exist', async (t) => {
  const ofTargets = ['job', 'instance']
  const known = new Map([['up', ['half', ...ofTargets]]])
  for (const [name, { type, labels }] of await documented()) {
    const suffixes = type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
    for (const suffix of suffixes) known.set(`${name}${suffix}`, ['le', ...labels, ...ofTargets])
  }
  // Those of the balancer, which test/faults/balancer.fault.ts finds there.
  const page = await readFile('docs/metrics.md', 'utf8')
  for (const name of page.match(/haproxy_\w+/g) ?? []) known.set(name, ['proxy', 'code', ...ofTargets])
  const given = await queries()
  t.ok(given.length > 20)
  for (const { expr } of given) {
    const { metrics, labels } = askedIn(expr)
    t.ok(metrics.length > 0 && metrics.every((name) => known.has(name)), expr)
    const existing = metrics.flatMap((name) => known.get(name) ?? [])
    const unknown = labels.filter((label) => !existing.includes(label))
    t.strictSame(unknown, [], expr)
  }
})

t.test('each alert leads to a line of its own that says what to do', async (t) => {
  const page = (await readPages()).find(({ file }) => file === 'docs/troubleshooting.md')
  const alerts = (await queries()).filter(({ alert }) => alert !== undefined)
  t.ok(alerts.length > 5)
  for (const { alert, annotations } of alerts) {
    const anchor = String(alert).toLowerCase()
    t.match(annotations, { runbook_url: `https://docs.example/troubleshooting.md#${anchor}` })
    t.ok(page?.anchors.includes(anchor), anchor)
  }
})
