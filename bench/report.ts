import type { Options } from './options.ts'
import type { Results } from './results.ts'
import { tables } from './tables.ts'

export interface ReportOptions {
  readonly results: Results
  /** Everything besides the code that the figures depend on. */
  readonly facts: readonly (readonly [name: string, value: string])[]
  readonly started: Date
  /** The command line. */
  readonly args: readonly string[]
  readonly options: Options
  /** Whether there is a plot next to the report. */
  readonly plotted: boolean
}

/** The text of RESULTS.md. */
export function report({ results, facts, started, args, options, plotted }: ReportOptions): string {
  const { rounds, seconds } = options
  const hasGo = options.cases.some(({ contenders }) => contenders.includes('go'))
  const goLine = hasGo
    ? '- **Go** is the same API, made with the defaults of net/http and pgx, without a log, [main.go](peers/go/main.go).\n'
    : ''
  const command = ['npm run bench', ...(args.length > 0 ? ['--', ...args] : [])].join(' ')
  return `# Benchmark results

Written by \`${command}\` on ${started.toISOString().slice(0, 10)}.

${facts.map(([name, value]) => `- ${name}: ${value}`).join('\n')}

The load generator, the servers and the database share the machine. Each contender is measured for ${seconds} s in each of ${rounds} rounds,
after a check that its responses are correct to the byte. The figures are medians over the rounds; a column “× plain Fastify”
has the median, over the rounds, of the ratio of both throughputs in one round.

- **this service** runs in its production configuration: keys, log at \`info\`, one worker unless stated otherwise.
- **plain Fastify** is the same API, made with the defaults of Fastify and pg, [plain-fastify.ts](baselines/plain-fastify.ts).
${goLine}- **node:http** sends the bytes of the list from memory and echoes updates, without keys, log and database,
  [node-http.ts](baselines/node-http.ts).
- **pg alone** sends one-row updates as prepared statements, with as many clients as there are connections, without HTTP.
- **COPY** lets PostgreSQL generate the text of the list and discards it; the time includes starting the program and
  connecting.
${plotted ? '\n![Throughput against connections](throughput.svg)\n' : ''}
${tables(results).replaceAll(/^###/gm, '##')}
`
}
