/** Compares the service with its alternatives; see `npm run bench -- --help`. */
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeApiKey } from '../src/api-keys/key.ts'
import { ConfigurationError } from '../src/config/errors.ts'
import { explain } from '../src/process/start-up-errors.ts'
import type { Case } from './cases.ts'
import { installedPsql } from './contenders.ts'
import { openBenchDatabase } from './database.ts'
import { findGenerator } from './load/generator.ts'
import { machine } from './machine.ts'
import { measureSetting, settingsOf } from './measure.ts'
import { readOptions } from './options.ts'
import { report, tables, throughputPlot } from './report.ts'
import { Results } from './results.ts'

/** Data folder. It is in the checkout, because a temporary folder may be in memory, where commits cost nothing. */
const directory = fileURLToPath(new URL('../.data/bench', import.meta.url))

/** Pool size of all servers: the service's default for a single process. */
const POOL_SIZE = 10

const args = process.argv.slice(2)
const options = readOptions(args)
const stop = new AbortController()
const closers: (() => Promise<void>)[] = []

/** Closes everything that was opened, in reverse order. */
async function closeAll(): Promise<void> {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close()
}

async function run(): Promise<void> {
  const { cases } = options
  const started = new Date()
  const facts = machine()
  const generator = await findGenerator()
  const psql = await installedPsql()
  await mkdir(directory, { recursive: true })
  closers.push(() => rm(directory, { recursive: true }))
  const database = await openBenchDatabase(directory)
  closers.push(database.stop)
  facts.push(
    ['Database', database.description],
    ['Load generator', generator.name],
    ['COPY by', psql ?? 'pg and pg-copy-streams, as psql is not installed'],
  )
  for (const [name, value] of facts) console.log(`${name}: ${value}`)
  requireConnections(cases, database.maxConnections)

  const results = new Results(cases)
  const setup = { databaseUrl: database.url, poolSize: POOL_SIZE, key: makeApiKey(), directory }
  for (const setting of settingsOf(cases)) {
    await measureSetting(setting, {
      ...options,
      setup,
      database,
      generator,
      psql,
      results,
      stop: stop.signal,
      onOpen: (stop) => closers.push(stop),
    })
  }

  console.log(`\n${tables(results)}`)
  if (options.output !== undefined) {
    await mkdir(options.output, { recursive: true })
    const plot = throughputPlot(results)
    if (plot !== undefined) await writeFile(path.join(options.output, 'throughput.svg'), plot)
    const text = report({ results, facts, started, args, options, plotted: plot !== undefined })
    await writeFile(path.join(options.output, 'RESULTS.md'), text)
    console.log(`\nWritten to ${path.join(options.output, 'RESULTS.md')}`)
  }
  const failures = results.failures()
  for (const failure of failures) console.error(`FAILED: ${failure}`)
  if (failures.length > 0) process.exitCode = 1
}

/** Checks that the server allows enough connections for all servers of a setting and for the clients that use pg directly. */
function requireConnections(cases: readonly Case[], available: number): void {
  const clients = cases.map(({ contenders, connections }) =>
    contenders.includes('direct') ? connections : 0,
  )
  const needed = Math.max(...clients) + 100
  if (available < needed) {
    throw new ConfigurationError([
      `DATABASE_URL must be a PostgreSQL with max_connections of at least ${needed}; this one has ${available}`,
    ])
  }
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => stop.abort())
}
// Standard output was closed, as by "| head"; still stop the servers.
process.stdout.on('error', () => stop.abort())

try {
  await run()
} catch (error) {
  console.error(stop.signal.aborted ? 'Stopped before the end.' : explain(error))
  process.exitCode = 1
} finally {
  await closeAll()
}
