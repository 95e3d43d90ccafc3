import { init } from 'echarts'
import { type Case, type ContenderName, contenderNames } from './cases.ts'
import { type Outcome, outcomes } from './goals.ts'
import type { Options } from './options.ts'
import type { Results } from './results.ts'

export interface ReportOptions {
  readonly results: Results
  /** What the results depend on besides the code, as returned by `machine.ts`. */
  readonly facts: readonly (readonly [name: string, value: string])[]
  readonly started: Date
  /** The command line. */
  readonly args: readonly string[]
  readonly options: Options
  /** Whether the report links to a plot in the same folder. */
  readonly plotted: boolean
}

/** Returns the text of RESULTS.md. */
export function report({ results, facts, started, args, options, plotted }: ReportOptions): string {
  const { rounds, seconds } = options
  const hasGo = results.cases.some(({ contenders }) => contenders.includes('go'))
  const goLine = hasGo
    ? '- **Go** is the same API, made with the defaults of net/http and pgx, without a log, [main.go](peers/go/main.go).\n'
    : ''
  const command = ['npm run bench', ...(args.length > 0 ? ['--', ...args] : [])].join(' ')
  return `# Benchmark results

Written by \`${command}\` on ${started.toISOString().slice(0, 10)}.

${facts.map(([name, value]) => `- ${name}: ${value}`).join('\n')}

The load generator, the servers and the database share the machine. Each contender is measured for ${seconds} s in each of ${rounds} rounds,
after a check that its responses are correct to the byte and a warm-up, in which V8 compiles the code. The figures are
medians over the rounds; a column “× plain Fastify” has the median, over the rounds, of the ratio of both throughputs in one
round.

- **this service** runs in its production configuration: keys, log at \`info\`.
- **plain Fastify** is the same API, made with the defaults of Fastify and pg, [plain-fastify.ts](baselines/plain-fastify.ts).
${goLine}- **node:http** sends the bytes of the list from memory and echoes updates, without keys, log and database,
  [node-http.ts](baselines/node-http.ts).
- **pg alone** sends one-row updates as prepared statements, with as many clients as there are connections, without HTTP.
- **COPY** lets PostgreSQL generate the text of the list and discards it; the time includes starting the program and
  connecting.
- **Right after a change**: before each list, an entry is changed in the database itself. “per second” and the times count only
  the lists; “database CPU µs” includes the change.
- **CPU µs** is the CPU time of the server's processes per response, by Linux's count; **database CPU µs** that of PostgreSQL's
  processes.
${plotted ? '\n![Throughput against connections](throughput.svg)\n' : ''}
${tables(results).replaceAll(/^###/gm, '##')}
`
}

/** The contenders that others are compared with. */
const baselines: readonly ContenderName[] = ['plain', 'go', 'node-http', 'direct', 'copy']

/** Formats all results as Markdown that is also readable in a terminal: one table per title, then the goals. */
export function tables(results: Results): string {
  const titles = [...new Set(results.cases.map(({ title }) => title))]
  const parts = titles.map((title) => `### ${title}\n\n${resultTable(results, title)}`)
  const reached = outcomes(results)
  if (reached.length > 0) parts.push(`### Goals\n\n${goalTable(reached)}`)
  return parts.join('\n\n')
}

function resultTable(results: Results, title: string): string {
  const cases = results.cases.filter((given) => given.title === title)
  const compared = baselines.filter((name) => cases.some(({ contenders }) => contenders.includes(name)))
  const head = ['Connections', 'Contender', 'per second', 'p50 ms', 'p99 ms', 'errors']
  const cpu = (['contenderCpuUs', 'databaseCpuUs'] as const).filter((value) =>
    cases.some(({ name, contenders }) =>
      contenders.some((contender) => results.median(name, contender, value) > 0),
    ),
  )
  const against = compared.map((name) => `× ${contenderNames[name]}`)
  const rows = cases.flatMap(({ name, connections, contenders }) =>
    contenders.map((contender) => [
      String(connections),
      contenderNames[contender],
      figure(results.median(name, contender, 'perSecond')),
      figure(results.median(name, contender, 'p50')),
      figure(results.median(name, contender, 'p99')),
      String(results.errors(name, contender)),
      ...cpu.map((value) => figure(results.median(name, contender, value))),
      ...compared.map((other) => figure(results.ratio(name, contender, other, 'perSecond'))),
    ]),
  )
  return table([...head, ...cpu.map((value) => cpuHeadings[value]), ...against], rows)
}

const cpuHeadings = {
  contenderCpuUs: 'CPU µs',
  databaseCpuUs: 'database CPU µs',
} as const

function goalTable(reached: readonly Outcome[]): string {
  const rows = reached.map(({ work, goal, reached, met }) => [
    work,
    goal,
    figure(reached),
    Number.isNaN(reached) ? 'not measured' : met ? 'yes' : 'no',
  ])
  return table(['Work', 'Goal', 'Reached', 'Met'], rows)
}

/** Formats three digits, which is already more than the noise of a run justifies. */
function figure(value: number): string {
  if (Number.isNaN(value)) return '–'
  return value.toLocaleString('en', { maximumSignificantDigits: 3 })
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((cell, column) =>
    Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)),
  )
  // Left-align words, right-align figures.
  const isText = head.map((_, column) => rows.some((row) => /[a-z]/i.test(row[column] ?? '')))
  const line = (cells: readonly string[]): string => {
    const padded = cells.map((cell, column) => {
      const width = widths[column] ?? 0
      return isText[column] ? cell.padEnd(width) : cell.padStart(width)
    })
    return `| ${padded.join(' | ')} |`
  }
  const rule = widths.map((width, column) =>
    isText[column] ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`,
  )
  return [line(head), line(rule), ...rows.map(line)].join('\n')
}

/** The plotted kinds of load. */
const works = ['list', 'update'] as const
/** The plotted contenders. */
const shown: readonly ContenderName[] = ['service', 'plain', 'node-http', 'direct']

/**
 * Plots throughput against connections as SVG, with lists next to updates. Returns undefined if no such case was measured.
 */
export function throughputPlot(results: Results): string | undefined {
  const steps = results.cases.filter(({ name }) => works.some((work) => name.startsWith(`${work}-`)))
  if (steps.length === 0) return undefined
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: 1000, height: 420 })
  chart.setOption({
    animation: false,
    backgroundColor: '#fff',
    title: works.map((work, index) => ({
      text: work === 'list' ? 'Lists a second' : 'Updates a second',
      left: index === 0 ? '26%' : '76%',
      textAlign: 'center',
    })),
    legend: { bottom: 0, itemGap: 30 },
    grid: [
      { left: 70, right: '53%', top: 50, bottom: 80 },
      { left: '56%', right: 30, top: 50, bottom: 80 },
    ],
    xAxis: works.map((work, gridIndex) => ({
      gridIndex,
      type: 'category',
      name: 'connections',
      nameLocation: 'middle',
      nameGap: 28,
      data: steps.filter((step) => step.work === work).map(({ connections }) => String(connections)),
    })),
    yAxis: works.map((_, gridIndex) => ({ gridIndex, type: 'log' })),
    series: works.flatMap((work, index) =>
      shown.map((contender) => ({
        type: 'line',
        name: contenderNames[contender],
        xAxisIndex: index,
        yAxisIndex: index,
        data: steps.filter((step) => step.work === work).map((step) => throughput(results, step, contender)),
      })),
    ),
  })
  const svg = chart.renderToSVGString()
  chart.dispose()
  return svg
}

/** A value of '-' leaves a gap in the line. */
function throughput(results: Results, { name }: Case, contender: ContenderName): number | '-' {
  const value = results.median(name, contender, 'perSecond')
  return Number.isNaN(value) ? '-' : value
}
