import { readFile } from 'node:fs/promises'
import { parser } from '@prometheus-io/lezer-promql'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'
import { parse } from 'yaml'
import { readPages } from '../docs/pages.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { metricsOf } from '../support/metrics.ts'
import { sendRaw } from '../support/raw.ts'
import { startServer } from '../support/running-server.ts'

/** A row of a table in docs/metrics.md. */
interface Documented {
  readonly type: string
  readonly labels: readonly string[]
}

async function documented(): Promise<Map<string, Documented>> {
  const page = await readFile('docs/metrics.md', 'utf8')
  const rows = page.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\| ([^|]+) \|$/gm)
  const here = [...rows].filter((row) => process.platform === 'linux' || !row[4]?.endsWith('; on Linux'))
  return new Map(
    here.map(([, name = '', type = '', labels = '']) => [
      name,
      { type, labels: Array.from(labels.matchAll(/`(\w+)`/g), ([, label = '']) => label).sort() },
    ]),
  )
}

/** What a query asks for: the name of each metric, and the labels that it chooses or groups by. */
function askedIn(query: string): { metrics: [name: string, labels: string[]][]; groupings: string[] } {
  const metrics: [string, string[]][] = []
  const groupings: string[] = []
  // Grafana puts intervals in place of its variables; those in strings are as good as any other text.
  const expression = query.replaceAll('$__rate_interval', '5m')
  parser.parse(expression).iterate({
    enter({ node, name, type }) {
      if (type.isError) throw new Error(`This is no PromQL: ${query}`)
      const text = expression.slice(node.from, node.to)
      if (name === 'Identifier') metrics.push([text, []])
      if (name !== 'LabelName') return
      if (node.parent?.name === 'GroupingLabels') groupings.push(text)
      else metrics.at(-1)?.[1].push(text)
    },
  })
  return { metrics, groupings }
}

const Rules = Type.Object({
  groups: Type.Array(
    Type.Object({
      rules: Type.Array(
        Type.Object({
          alert: Type.String(),
          expr: Type.String(),
          annotations: Type.Object({ runbook_url: Type.String() }),
        }),
      ),
    }),
  ),
})
const Dashboard = Type.Object({
  panels: Type.Array(
    Type.Object({
      title: Type.String(),
      targets: Type.Optional(Type.Array(Type.Object({ expr: Type.String() }))),
    }),
  ),
})

/** Every query that operators are given, by where it stands. */
async function queries(): Promise<[where: string, query: string][]> {
  const { groups } = Value.Parse(Rules, parse(await readFile('ops/alerts.yml', 'utf8')))
  const { panels } = Value.Parse(Dashboard, JSON.parse(await readFile('ops/dashboard.json', 'utf8')))
  return [
    ...groups.flatMap(({ rules }) => rules.map(({ alert, expr }): [string, string] => [alert, expr])),
    ...panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr }): [string, string] => [title, expr]),
    ),
  ]
}

t.test('docs/metrics.md lists every metric of the service, with its type and labels', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  await database.query(
    "INSERT INTO api_keys (name, digest, expires_at) VALUES ('billing', sha256('billing'), now() + interval '1 day')",
  )
  const server = await startServer(t, { DATABASE_URL: database.url, METRICS_PORT: '0' })
  const { scrape } = await metricsOf(server)
  const { port, send } = server
  await send('GET', '/v1/inventory')
  await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
  await sendRaw(port, 'no HTTP\r\n\r\n')
  await database.query('ALTER TABLE inventory RENAME TO away')
  await eventually('a 503', async () => (await send('GET', '/readyz')).status === 503)
  await database.query('ALTER TABLE away RENAME TO inventory')
  // The kinds of garbage collection appear only after the first one.
  const metrics = await eventually('a garbage collection', async () => {
    const families = await scrape()
    return families.get('nodejs_gc_duration_seconds')?.series.length ? families : undefined
  })
  const pages = await documented()
  // Those of Node.js and of the process are prom-client's; the page has only what alerts and the dashboard use.
  const described = [...metrics.values()].filter(
    ({ name }) => pages.has(name) || !/^(nodejs|process)_/.test(name),
  )
  const found = described.map(({ name, type, series }) => {
    const labels = new Set(series.flatMap((one) => Object.keys(one.labels)))
    return [name, { type, labels: [...labels].filter((label) => label !== 'le').sort() }] as const
  })
  t.strictSame(Object.fromEntries(pages), Object.fromEntries(found))
  for (const { name, help } of metrics.values()) t.match(help, /\w/, `${name} has a help text`)
})

t.test('alerts and dashboard ask for nothing that does not exist', async (t) => {
  const known = await documented()
  const names = new Map([['up', new Set(['job', 'instance'])]])
  for (const [name, { type, labels }] of known) {
    const ofTarget = new Set([...labels, 'job', 'instance'])
    if (type !== 'histogram') names.set(name, ofTarget)
    else for (const suffix of ['bucket', 'sum', 'count']) names.set(`${name}_${suffix}`, ofTarget)
  }
  const given = await queries()
  t.ok(given.length > 20)
  for (const [where, query] of given) {
    const { metrics, groupings } = askedIn(query)
    t.ok(metrics.length > 0, where)
    const groupable = new Set(['le'])
    for (const [name, labels] of metrics) {
      const has = names.get(name)
      t.ok(has, `${where}: ${name} exists`)
      for (const label of labels) t.ok(has?.has(label), `${where}: ${name} has ${label}`)
      for (const label of has ?? []) groupable.add(label)
    }
    for (const label of groupings) t.ok(groupable.has(label), `${where}: there is ${label} to group by`)
  }
})

t.test('each alert leads to a paragraph of its own that says what to do', async (t) => {
  const { groups } = Value.Parse(Rules, parse(await readFile('ops/alerts.yml', 'utf8')))
  const page = (await readPages()).find(({ file }) => file === 'docs/troubleshooting.md')
  const rules = groups.flatMap(({ rules }) => rules)
  t.ok(rules.length > 5)
  for (const { alert, annotations } of rules) {
    t.equal(annotations.runbook_url, `https://docs.example/troubleshooting.md#${alert.toLowerCase()}`, alert)
    t.ok(page?.anchors.includes(alert.toLowerCase()), alert)
  }
})
