import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { parser } from '@prometheus-io/lezer-promql'
import type { Command } from 'commander'
import t from 'tap'
import { parse } from 'yaml'
import { MIN_READ_MS, REFRESH_MS } from '../../src/api-keys/cache.ts'
import { commandLine } from '../../src/cli/command-line.ts'
import { Environment } from '../../src/config/variables.ts'
import { appTimeouts } from '../../src/http/app.ts'
import { MAX_CONNECTIONS, MAX_PIPELINED } from '../../src/http/connections.ts'
import { MAX_BODY_BYTES } from '../../src/http/json-body.ts'
import { MAX_HEADERS } from '../../src/http/malformed-requests.ts'
import { KEEP_ALIVE_TIMEOUT_MS } from '../../src/http/server-options.ts'
import { MAX_QUANTITY } from '../../src/inventory/entry/schemas.ts'
import { downloadLimits } from '../../src/inventory/list/delivery/active-downloads.ts'
import { serviceTimings } from '../../src/service.ts'
import { readMetrics, readPages } from './pages.ts'

const pages = readPages()

/** Every line that could be pasted, and every piece of code in a sentence. */
const commands = pages.flatMap(({ file, lines, words }) =>
  [...lines, ...words].map((text) => ({ file, text: text.replace(/\s#\s.*$/, '') })),
)

t.test('every link within the repository leads somewhere', async (t) => {
  for (const { file, links, anchors } of pages) {
    for (const link of links.filter((link) => !/^[a-z]+:/.test(link))) {
      const [target = '', anchor] = link.split('#')
      const found = path.join(path.dirname(file), target)
      const heading = target === '' ? anchors : pages.find((page) => page.file === found)?.anchors
      if (target !== '') t.ok(existsSync(found), `${file}: ${link}`)
      if (anchor !== undefined) t.ok(heading?.includes(anchor), `${file}: ${link}`)
    }
  }
})

t.test('every file of the repository that is named exists', async (t) => {
  const named = /^(?:(?:src|test|bench|docs|ops|examples|migrations)\/[\w./-]+|(?:[\w-]+\/)+[\w-]+\.ts)$/
  // The changelog names files of former versions, too.
  for (const { file, words } of pages.filter(({ file }) => file !== 'CHANGELOG.md')) {
    for (const word of words.filter((word) => named.test(word))) {
      const from = ['.', 'src', path.dirname(file)]
      const exists = from.some((folder) => existsSync(path.join(folder, word)))
      t.ok(exists, `${file}: ${word}`)
    }
  }
})

t.test('every script that is named can be run', async (t) => {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8'))
  for (const { file, text } of commands) {
    const named = text.matchAll(/\bnpm (?:run (?:--silent )?([\w:]+)|(start|test)\b)/g)
    for (const [, script = '', other = script] of named) t.ok(other in scripts, `${file}: npm run ${other}`)
  }
})

/** The options of each command, by its words. */
function listOptions(command: Command, parents = ''): Map<string, string[]> {
  const options = command.options.map(({ long }) => long ?? '')
  const children = command.commands.flatMap((child) => [...listOptions(child, `${parents}${child.name()} `)])
  return new Map([[parents.trimEnd(), [...options, '--help']], ...children])
}

t.test('every command of the command line is one that it knows, with its options', async (t) => {
  const known = listOptions(commandLine(async () => ''))
  let count = 0
  // The changelog names commands of former versions, too.
  for (const { file, text } of commands.filter(({ file }) => file !== 'CHANGELOG.md')) {
    for (const [, call = ''] of text.matchAll(/(?<=^|[\s(])(?<!No )inventory ([a-z]+\b[^|)>;]*)/g)) {
      const [command = '', second = ''] = call.split(/\s+/)
      // `history` stands for `history list`.
      const names = [`${command} ${second}`, `${command} list`, command]
      const name = names.find((each) => known.has(each)) ?? command
      t.ok(known.has(name), `${file}: ${call}`)
      for (const [option] of call.matchAll(/--[a-z][a-z0-9-]*/g)) {
        count += 1
        t.ok(known.get(name)?.includes(option), `${file}: ${option} of ${call}`)
      }
    }
  }
  t.ok(count > 5, 'some options were found')
})

t.test('the table of settings has each of .env.example once', async (t) => {
  const example = await readFile('.env.example', 'utf8')
  const page = await readFile('docs/operating.md', 'utf8')
  const settings = Array.from(example.matchAll(/^#? ?([A-Z][A-Z_]+)=/gm), ([, name]) => name)
  const cells = page.match(/^\| `[A-Z].*?\|/gm)?.join('') ?? ''
  t.strictSame(cells.match(/(?<=`)[A-Z][A-Z_]+(?=`)/g)?.sort(), settings.sort())
})

t.test('numbers in the pages are those of the code', async (t) => {
  const { arrivalMs, stallMs, updates } = appTimeouts
  const { DATABASE_POOL_SIZE, PORT } = Environment.properties
  const statements: Readonly<Record<string, readonly string[]>> = {
    'docs/api.md': [
      `A body has at most ${MAX_BODY_BYTES} bytes`,
      `${MAX_HEADERS} headers`,
      `the request took more than ${arrivalMs / 1000} seconds to arrive`,
      `A request must arrive within ${arrivalMs / 1000} seconds`,
      `An idle connection stays open for ${KEEP_ALIVE_TIMEOUT_MS / 1000} seconds`,
      `An update that has waited for ${updates.wait / 1000} seconds`,
      `A client that reads nothing for ${stallMs / 1000} seconds is disconnected`,
      `more than ${MAX_PIPELINED} without waiting`,
      `from 0 to ${MAX_QUANTITY}`,
    ],
    'docs/limits.md': [
      `| ${MAX_CONNECTIONS.toLocaleString('en')}; further ones`,
      `more than ${downloadLimits.budgetBytes / 1024 ** 2} MB of old lists`,
      `they have ${downloadLimits.timeoutMs / 1000} seconds to finish`,
      `the service reads its keys every ${REFRESH_MS / 1000} seconds`,
    ],
    'docs/metrics.md': [`every ${REFRESH_MS / 1000} seconds, if the database is available`],
    'docs/operating.md': [
      `| \`DATABASE_POOL_SIZE\` | ${DATABASE_POOL_SIZE.default} | maximum connections`,
      `at least ${DATABASE_POOL_SIZE.minimum};`,
      `| \`127.0.0.1\`, ${PORT.default} |`,
    ],
    'docs/reliability.md': [`delays only callers of its pet, for at most ${updates.wait / 1000} seconds`],
  }
  for (const [file, sentences] of Object.entries(statements)) {
    const text = (await readFile(file, 'utf8')).replaceAll(/\s+/g, ' ')
    for (const sentence of sentences) t.ok(text.includes(sentence), `${file}: ${sentence}`)
  }
})

t.test('the changelog, the image and .nvmrc have the right versions', async (t) => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  const changelog = await readFile('CHANGELOG.md', 'utf8')
  const newest = changelog.split('\n').find((line) => line.startsWith('## '))
  t.match(newest, new RegExp(`^## (?:Unreleased|${version} - \\d{4}-\\d\\d-\\d\\d)$`))
  const image = await readFile('Dockerfile', 'utf8')
  t.match(image, `org.opencontainers.image.version="${version}"`)
  const node = (await readFile('.nvmrc', 'utf8')).trim()
  const bases = [...image.matchAll(/^FROM (?:--\S+ )?(\S+)/gm)].map(([, base]) => base)
  t.strictSame(new Set(bases), new Set([`node:${node}-alpine`]), '.nvmrc names its version of Node')
})

t.test('a request gets its 503 before its caller or the balancer gives up', async (t) => {
  const { requests, lists, probe, app } = serviceTimings
  const longest = Math.max(
    app.updates.wait + app.updates.check + requests.answer,
    lists.answer,
    // For an unknown key, the keys are read once more after the read in progress.
    2 * probe.answer + MIN_READ_MS,
  )
  for (const [file, limit] of [
    ['docs/reliability.md', /answers 503 with `Retry-After` within (\d+) seconds/],
    ['ops/haproxy.cfg', /timeout server (\d+)s/],
    ['examples/curl/inventory.sh', /INVENTORY_TIMEOUT_SECONDS:-(\d+)/],
    ['examples/typescript/client.ts', /timeoutMs = (\d+)_000/],
  ] as const) {
    const [, seconds] = limit.exec(await readFile(file, 'utf8')) ?? []
    t.ok(longest < Number(seconds) * 1000, `${file}: ${longest} ms and ${seconds} s`)
  }
})

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

t.test('alerts and dashboard ask for what exists, and each alert leads to what to do', async (t) => {
  const targets = ['job', 'instance']
  const known = new Map([['up', ['half', ...targets]]])
  for (const [name, { type, labels }] of readMetrics()) {
    const suffixes = type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
    for (const suffix of suffixes) known.set(`${name}${suffix}`, ['le', ...labels, ...targets])
  }
  // Those of the balancer, which test/faults/balancer.fault.ts finds there.
  const page = await readFile('docs/metrics.md', 'utf8')
  for (const name of page.match(/haproxy_\w+/g) ?? []) known.set(name, ['proxy', 'code', ...targets])
  const queries: { expr: string; alert?: string; annotations?: unknown }[] = []
  const collect = (_: unknown, value: unknown): unknown => {
    if (Object(value).expr !== undefined) queries.push(Object(value))
    return value
  }
  parse(await readFile('ops/alerts.yml', 'utf8'), collect)
  t.ok(queries.length > 5)
  JSON.parse(await readFile('ops/dashboard.json', 'utf8'), collect)
  t.ok(queries.length > 20)
  const runbook = pages.find(({ file }) => file === 'docs/troubleshooting.md')
  for (const { expr, alert, annotations } of queries) {
    const { metrics, labels } = askedIn(expr)
    t.ok(metrics.length > 0 && metrics.every((name) => known.has(name)), expr)
    const existing = metrics.flatMap((name) => known.get(name) ?? [])
    for (const label of labels) t.ok(existing.includes(label), expr)
    if (alert === undefined) continue
    const anchor = alert.toLowerCase()
    t.match(annotations, { runbook_url: `https://docs.example/troubleshooting.md#${anchor}` })
    t.ok(runbook?.anchors.includes(anchor), anchor)
  }
})
