/** The server: starts the service and stops it on a signal. */
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { Logger } from 'pino'
import { readEnvironment } from './config/environment.ts'
import { type Config, loadConfig } from './config/load-config.ts'
import { version } from './config/version.ts'
import { parseAddress } from './database/address.ts'
import { OperatorError } from './database/operator-error.ts'
import { serveMetrics } from './metrics/metrics-server.ts'
import { measureProcess } from './metrics/process-metrics.ts'
import { explain } from './process/explain.ts'
import { droppedLogLines, openLog } from './process/log.ts'
import { closeOnSignals } from './process/signals.ts'
import { printableText, report } from './process/terminal.ts'
import { serviceTimings, startService } from './service.ts'

/** How long shutdown may take. Docker kills a container 10 seconds after SIGTERM. */
const STOP_TIMEOUT_MS = 9500

/** Aborted when the process begins to stop: a start in progress ends. */
const stopping = new AbortController()

const closers: (() => Promise<void>)[] = []

let closing: Promise<void> | undefined

/** Closes everything that was opened, the newest first. A signal during a failed start waits for the same close. */
function closeAll(): Promise<void> {
  stopping.abort()
  closing ??= (async () => {
    for (const close of closers.toReversed()) await close()
  })()
  return closing
}

/** Starts the service. Without DATABASE_URL, starts a local database first. */
async function start(config: Config, log: Logger): Promise<void> {
  // One address, IPv4 if there is one: for `localhost`, Fastify would add a server that lacks the listeners of this service.
  const { address: host } = await lookup(config.host, { order: 'ipv4first' })
  const local = config.databaseUrl === undefined ? await setUpLocally(host, config) : undefined
  stopping.signal.throwIfAborted()
  const databaseUrl = config.databaseUrl ?? local?.databaseUrl ?? ''
  const apiKeys = config.apiKeys.length === 0 && local ? [local.key] : config.apiKeys

  const { databasePoolSize, behindPooler, metricsPort = null, publicUrls, trustProxy, traces } = config
  const settings = {
    database: parseAddress(databaseUrl).name,
    databasePoolSize,
    behindPooler,
    fixedKeys: apiKeys.map(({ name }) => name),
    metricsPort,
    publicUrls,
    trustProxy,
    traces,
  }
  log.info({ version, node: process.version, ...settings }, 'starting')
  // Loading the module costs time and memory.
  const tracing = traces ? (await import('./tracing/tracing.ts')).startTracing(version, log) : undefined
  if (tracing) closers.push(tracing.close)
  const options = { ...config, host, version, databaseUrl, apiKeys, tracing }
  const { address, metrics, close } = await startService(options, serviceTimings, log)
  closers.push(close)
  if (metricsPort !== null) {
    const { register, scrape } = metrics
    measureProcess(register, version, droppedLogLines)
    await serveMetrics({ host, port: metricsPort, scrape, log })
  }
  stopping.signal.throwIfAborted()
  if (local)
    process.stdout.write(
      printableText(local.welcome(address, config.apiKeys.length === 0 ? local.key.key : '<your API key>')),
    )
}

/** Sets up a database to try the service, with modules that other servers do not need. */
async function setUpLocally(host: string, { port, metricsPort = 0 }: Config) {
  // Before anything is started: fails as `listen` of the service would.
  for (const wanted of [port, metricsPort]) {
    const server = createServer().listen(wanted, host)
    await once(server, 'listening')
    await once(server.close(), 'close')
  }
  const { setUpLocally } = await import('./local/local-setup.ts')
  const setup = setUpLocally(stopping.signal)
  // A signal during the setup must leave no database running.
  closers.push(async () => (await setup.catch(() => undefined))?.stop())
  const local = await setup
  void local.ended.then((reason) => {
    // As any unhandled rejection, it stops the process.
    if (!stopping.signal.aborted) throw new OperatorError(reason)
  })
  return local
}

try {
  const config = loadConfig(readEnvironment())
  const log = await openLog(config.logLevel)
  closeOnSignals(log, STOP_TIMEOUT_MS, closeAll)
  await start(config, log)
} catch (error) {
  // After a signal, its handler closes everything and exits.
  if (!stopping.signal.aborted) {
    const [message, ...details] = explain(error)
    report(`petstore-inventory: ${message}`, ...details)
    setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref()
    await closeAll().catch(() => {})
    process.exit(1)
  }
}
