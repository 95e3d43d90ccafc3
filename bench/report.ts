import type { Options } from './options.ts'
import type { Results } from './results.ts'
import { tables } from './tables.ts'

export interface ReportOptions {
  readonly results: Results
  /** What the figures depend on besides the code. */
  readonly facts: readonly (readonly [name: string, value: string])[]
  readonly started: Date
  /** The command line. */
  readonly args: readonly string[]
  readonly options: Options
  /** Whether there is a plot beside the report. */
  readonly plotted: boolean
}

/** The text of RESULTS.md. */
export function report({ results, facts, started, args, options, plotted }: ReportOptions): string {
  const { rounds, seconds } = options
  const command = ['npm run bench', ...(args.length > 0 ? ['--', ...args] : [])].join(' ')
  return `# What was measured

Written by \`${command}\` on ${started.toISOString().slice(0, 10)}.

${facts.map(([name, value]) => `- ${name}: ${value}`).join('\n')}

Load generator, servers and database share the machine. Everyone has a turn of ${seconds} s in each of ${rounds} rounds, after a
check that the answers are right to the byte. The figures are medians over the rounds; a column “× plain Fastify” has
the median, over the rounds, of the quotient of both throughputs in one round.

- **this service** runs in its production configuration: keys, log at \`info\`, one worker unless said otherwise.
- **plain Fastify** is the same interface by Fastify and pg with their defaults, [plain-fastify.ts](baselines/plain-fastify.ts).
- **node:http** sends the bytes of the list from memory and echoes updates, without key, log and database,
  [node-http.ts](baselines/node-http.ts).
- **pg alone** sends one-row updates as prepared statements, as many clients as there are connections, without HTTP.
- **COPY** has PostgreSQL make the text of the list and throws it away; the time includes the start of the program and
  the connection.
${plotted ? '\n![Throughput against connections](throughput.svg)\n' : ''}
${tables(results).replaceAll(/^###/gm, '##')}
`
}
