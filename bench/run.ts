/**
 * Compares the service with plain Fastify and pg, and with a server in Go, and writes RESULTS.md and its picture. Needs wrk and Go, and 5
 * minutes. `--only CASE` measures one case, and writes no file.
 */
import { execFile } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs, promisify } from 'node:util'
import { type Case, type ContenderName, cases, contenderNames, toName } from './cases.ts'
import { chart } from './chart.ts'
import { type Contender, createContender } from './contenders.ts'
import { type BenchDatabase, startDatabase } from './database.ts'
import { type Measured, report } from './report.ts'
import { cpuSeconds, startGo, startPlainFastify, startService } from './servers.ts'

/** V8 compiles a server's code during its first 15,000 requests; meanwhile, a request takes up to three times the CPU time. */
const WARM_UP_RESPONSES = 15_000
const WARM_UP_SECONDS = 6

/** In the checkout, because a temporary folder may be in memory, where commits cost nothing. */
const directory = fileURLToPath(new URL('../.data/bench', import.meta.url))

const ROUNDS = 3
const SECONDS = 2

const { only } = parseArgs({ options: { only: { type: 'string', multiple: true } } }).values
const chosen = cases.filter((benchCase) => only?.includes(toName(benchCase)) ?? true)

const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort(signal))

async function measure(benchCase: Case, contender: Contender, database: BenchDatabase): Promise<Measured> {
  const [cpu, databaseCpu] = [await cpuSeconds(contender.pid), await cpuSeconds(database.pid)]
  const sample = await contender.measure(benchCase, SECONDS)
  const perResponse = (seconds: number): number => (seconds * 1e6) / sample.count
  return {
    ...sample,
    cpuUs: perResponse((await cpuSeconds(contender.pid)) - cpu),
    databaseCpuUs: perResponse((await cpuSeconds(database.pid)) - databaseCpu),
  }
}

async function warmUp(benchCase: Case, contender: Contender): Promise<void> {
  const end = performance.now() + WARM_UP_SECONDS * 1000
  for (let count = 0; count < WARM_UP_RESPONSES && performance.now() < end; )
    count += (await contender.measure(benchCase, 1)).count
}

/** Measures all contenders in each round, so that a slow moment of the machine affects all of them. */
async function measureCase(
  benchCase: Case,
  contenders: ReadonlyMap<ContenderName, Contender>,
  database: BenchDatabase,
): Promise<Map<ContenderName, Measured[]>> {
  const results = new Map<ContenderName, Measured[]>()
  for (let round = 0; round < ROUNDS; round++) {
    for (const name of benchCase.contenders) {
      stop.signal.throwIfAborted()
      const contender = contenders.get(name)
      if (contender === undefined) throw new Error(`${name} is not running`)
      if (round === 0) await warmUp(benchCase, contender)
      await contender.verify()
      await database.reset()
      const sample = await measure(benchCase, contender, database)
      results.set(name, [...(results.get(name) ?? []), sample])
      console.log(`${toName(benchCase)}, ${contenderNames[name]}: ${sample.perSecond.toFixed(1)} a second`)
    }
  }
  return results
}

async function run(closers: (() => Promise<unknown>)[]): Promise<void> {
  if (chosen.length === 0) throw new Error(`unknown case; the cases are ${cases.map(toName).join(', ')}`)
  const started = new Date().toISOString().slice(0, 10)
  await mkdir(directory, { recursive: true })
  closers.push(() => rm(directory, { recursive: true }))
  const database = await startDatabase(directory)
  closers.push(() => database.stop())
  const setup = { databaseUrl: database.url, key: database.key, directory }
  const contenders = new Map<ContenderName, Contender>()
  closers.push(() => Promise.all(Array.from(contenders.values(), (contender) => contender.stop())))
  contenders.set('service', createContender(await startService(setup), database))
  contenders.set('plain', createContender(await startPlainFastify(setup), database))
  contenders.set('go', createContender(await startGo(setup), database))

  const results = new Map<Case, ReadonlyMap<ContenderName, readonly Measured[]>>()
  for (const benchCase of chosen) {
    await database.fill(benchCase.entries)
    results.set(benchCase, await measureCase(benchCase, contenders, database))
  }
  const table = report(results)
  const { stdout: commit } = await promisify(execFile)('git', ['rev-parse', '--short', 'HEAD'])
  const facts = `${cpus()[0]?.model.trim()}, ${cpus().length} cores shared by all; Node ${process.version}, PostgreSQL ${database.version}, fsync on; commit ${commit.trim()}, ${started}`
  console.log(`\n${facts}\n\n${table}`)
  if (only !== undefined) return
  await writeFile(new URL('./results.svg', import.meta.url), chart(results))
  await writeFile(new URL('./RESULTS.md', import.meta.url), page(facts, table))
}

const page = (facts: string, table: string): string => `# Benchmark results

![Requests a second of this service, plain Fastify and Go in each case; each case has a scale of its own](results.svg)

\`npm run bench\` on ${facts}. Each contender was measured ${ROUNDS} times for ${SECONDS} s, in turns, after a warm-up and a check of its
responses. The figures are medians. "service is ×" is how many requests this service serves for one of the contender.

- Cases end in the number of callers, and have 1,000 entries; **after-change** ends in the number of entries, and has one caller,
  before each of whose lists an entry is changed; only the lists count. **mix** is nine lists for each update.
- **this service** runs as in production, with stored keys and log; **plain Fastify** is the same API with the defaults of Fastify and pg
  ([plain-fastify.ts](plain-fastify.ts)), **Go** with those of net/http and pgx ([main.go](go/main.go)), without a log.

${table}
`

const closers: (() => Promise<unknown>)[] = []
try {
  await run(closers)
} catch (error) {
  console.error(stop.signal.aborted ? 'Stopped before the end.' : error)
  process.exitCode = 1
} finally {
  for (const close of closers.reverse()) await close()
}
