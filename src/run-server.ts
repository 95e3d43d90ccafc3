/** Starts the service and stops it on a signal. */
import type { Logger } from 'pino'
import { type Config, loadConfig } from './config/config.ts'
import { readEnvironment } from './config/environment.ts'
import { StartUpError } from './config/errors.ts'
import { version } from './config/version.ts'
import { parseAddress } from './database/address.ts'
import { listenAddress } from './http/listen-address.ts'
import type { LocalSetup } from './local/local-setup.ts'
import { measureProcess } from './metrics/process.ts'
import { serveMetrics } from './metrics/server.ts'
import { droppedLogLines, openLog } from './process/log.ts'
import { closeOnSignals, ignoreInspectorSignal } from './process/signals.ts'
import { explain } from './process/start-up-errors.ts'
import { startService } from './service.ts'
import type { Tracing } from './tracing/tracing.ts'

/** How long shutdown may take. Docker kills a container 10 seconds after SIGTERM. */
const STOP_TIMEOUT_MS = 9000

/** Aborted when the process begins to stop, so that a start in progress ends. */
const stopping = new AbortController()

const closers: (() => Promise<void>)[] = []

let closing: Promise<void> | undefined

/** Closes everything that was opened. A signal during a failed start waits for the same close, and does not cut it off. */
function closeAll(): Promise<void> {
  stopping.abort()
  closing ??= closeNewestFirst()
  return closing
}

/** What fails to close does not keep the rest open. */
async function closeNewestFirst(): Promise<void> {
  const close = closers.pop()
  if (close === undefined) return
  try {
    await close()
  } finally {
    await closeNewestFirst()
  }
}

/**
 * Starts the service. Without DATABASE_URL, starts a local database first.
 *
 * @param onError stops this process
 */
async function start(config: Config, log: Logger, onError: (error: unknown) => void): Promise<void> {
  const localSetup = config.databaseUrl === undefined ? setUpLocally(config) : undefined
  // Registered before the setup is complete, so that a signal during the setup leaves no database running.
  closers.push(async () => (await localSetup?.catch(() => undefined))?.stop())
  const local = await localSetup
  stopping.signal.throwIfAborted()
  void local?.ended.then((reason) => {
    if (!stopping.signal.aborted) onError(new StartUpError(reason))
  })
  const databaseUrl = config.databaseUrl ?? local?.databaseUrl ?? ''
  const apiKeys = config.apiKeys.length === 0 && local ? [local.key] : config.apiKeys

  const { databasePoolSize, metricsPort = null, traces } = config
  log.info(
    {
      version,
      node: process.version,
      database: parseAddress(databaseUrl).name,
      databasePoolSize,
      metricsPort,
      traces,
    },
    'starting',
  )
  const tracing = traces ? await openTracing(log) : undefined
  const service = await startService({ ...config, version, databaseUrl, apiKeys, tracing }, log)
  closers.push(service.close)
  if (metricsPort !== null) {
    const { register, scrape } = service.metrics
    measureProcess(register, version, droppedLogLines)
    await serveMetrics({ host: config.host, port: metricsPort, scrape, log })
  }
  stopping.signal.throwIfAborted()
  if (local)
    console.log(
      local.welcome(service.address, config.apiKeys.length === 0 ? local.key.key : '<your API key>'),
    )
}

/** Sets up a database to try the service. Imported only here, because other servers need neither it nor the migrations. */
async function setUpLocally({ host, port }: Config): Promise<LocalSetup> {
  const { LOCAL_DIRECTORY, setUpLocally } = await import('./local/local-setup.ts')
  const { freePort } = await import('./local/free-port.ts')
  // Reports a port that is in use before the setup, which may take seconds.
  await freePort(await listenAddress(host), port)
  return setUpLocally(LOCAL_DIRECTORY, stopping.signal, (place) => {
    console.log(`Starting PostgreSQL in ${place}…`)
  })
}

/** Starts tracing. The module is imported on demand, because loading it costs time and memory. */
async function openTracing(log: Logger): Promise<Tracing> {
  const { startTracing } = await import('./tracing/tracing.ts')
  const tracing = startTracing(version, log)
  closers.push(tracing.close)
  return tracing
}

ignoreInspectorSignal()
try {
  const config = loadConfig(readEnvironment())
  const log = await openLog(config.logLevel)
  for (const warning of config.warnings) log.warn(warning)
  await start(config, log, closeOnSignals(log, STOP_TIMEOUT_MS, closeAll))
} catch (error) {
  // After a signal, its handler closes everything and exits.
  if (!stopping.signal.aborted) {
    console.error(`petstore-inventory: ${explain(error)}`)
    setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref()
    await closeAll().catch(() => {})
    process.exit(1)
  }
}
