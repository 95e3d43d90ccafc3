/** Starts the server and stops it on a signal. `server.ts` loads this module once V8 is configured. */
import cluster from 'node:cluster'
import type { Logger } from 'pino'
import type { FixedKey } from './api-keys/fixed-keys.ts'
import { type Config, loadConfig } from './config/config.ts'
import { settingWarnings } from './config/describe.ts'
import { readEnvironment } from './config/environment.ts'
import { version } from './config/version.ts'
import { hostAndDatabaseOf } from './database/pool.ts'
import type { LocalSetup } from './local/local-setup.ts'
import { expose, type MetricFamily } from './metrics/families.ts'
import { measureProcess } from './metrics/process.ts'
import { serveMetrics } from './metrics/server.ts'
import { answerPrimary, metricsOfWorkers } from './metrics/workers.ts'
import { droppedLogLines, openLog } from './process/log.ts'
import { connectToPrimary } from './process/primary.ts'
import { closeOnSignals, ignoreInspectorSignal } from './process/signals.ts'
import { explain } from './process/start-up-errors.ts'
import { startWorkers, WorkerFailedError } from './process/workers.ts'
import { type Service, startService } from './service.ts'
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

/** Starts the service, in this process or in workers. Without DATABASE_URL, starts a local database first. */
async function start(config: Config, log: Logger): Promise<void> {
  const localSetup = config.databaseUrl === undefined ? setUpLocally() : undefined
  // Registered before the setup is complete, so that a signal during the setup leaves no database running.
  closers.push(async () => (await localSetup?.catch(() => undefined))?.stop())
  const local = await localSetup
  stopping.signal.throwIfAborted()
  const databaseUrl = config.databaseUrl ?? local?.databaseUrl ?? ''
  const apiKeys = config.apiKeys.length === 0 && local ? [local.key] : config.apiKeys

  if (!cluster.isWorker) {
    const { workers, databasePoolSize, metricsPort = null, traces } = config
    log.info(
      {
        version,
        node: process.version,
        database: hostAndDatabaseOf(databaseUrl),
        workers,
        databasePoolSize,
        metricsPort,
        traces,
      },
      'starting',
    )
  }
  const address =
    config.workers > 1 && cluster.isPrimary
      ? await serveByWorkers(config, local ? environmentOf(databaseUrl, apiKeys) : {}, log)
      : await serveHere(config, databaseUrl, apiKeys, log)
  stopping.signal.throwIfAborted()
  if (local)
    console.log(local.welcome(address, config.apiKeys.length === 0 ? local.key.key : '<your API key>'))
}

/** Returns the environment variables from which workers learn of the local setup. */
function environmentOf(databaseUrl: string, apiKeys: readonly FixedKey[]): Record<string, string> {
  return {
    DATABASE_URL: databaseUrl,
    API_KEYS: apiKeys.map(({ name, key }) => `${name}:${key}`).join(','),
    // Its keys are in API_KEYS, and both must not be set.
    API_KEYS_FILE: '',
  }
}

/** Starts the workers, with `env` in addition to the environment, and returns the URL of the service. */
async function serveByWorkers(config: Config, env: Record<string, string>, log: Logger): Promise<string> {
  // First, because a worker that is not ready does not listen while others do.
  await startMetricsServer(config, log, metricsOfWorkers())
  stopping.signal.throwIfAborted()
  const workers = startWorkers(config.workers, env, log)
  closers.push(workers.stop)
  return workers.address
}

/** Starts the service in this process, which may be a worker, and returns its URL. */
async function serveHere(
  config: Config,
  databaseUrl: string,
  apiKeys: readonly FixedKey[],
  log: Logger,
): Promise<string> {
  const connections = Math.floor(config.databasePoolSize / config.workers)
  const tracing = config.traces ? await openTracing(log) : undefined
  const primary = cluster.isWorker ? connectToPrimary() : undefined
  const service = await startService(
    { ...config, version, databaseUrl, apiKeys, connections, tracing, primary },
    log,
  )
  closers.push(service.close)
  if (config.metricsPort !== undefined) await exposeMetrics(config, log, service)
  return service.address
}

/** Sets up a database to try the service. Imported only here, because other servers need neither it nor the migrations. */
async function setUpLocally(): Promise<LocalSetup> {
  const { LOCAL_DIRECTORY, setUpLocally } = await import('./local/local-setup.ts')
  return setUpLocally(LOCAL_DIRECTORY, stopping.signal)
}

/** Starts tracing. The module is imported on demand, because loading it costs time and memory. */
async function openTracing(log: Logger): Promise<Tracing> {
  const { startTracing } = await import('./tracing/tracing.ts')
  const tracing = startTracing(version, log)
  closers.push(tracing.close)
  return tracing
}

/** Serves the metrics of this process. A worker sends them to the primary process instead, which serves those of all workers. */
async function exposeMetrics(config: Config, log: Logger, service: Service): Promise<void> {
  const measure = measureProcess(version, droppedLogLines)
  const collect = async (withStock: boolean): Promise<MetricFamily[]> => [
    ...(await measure()),
    ...(await service.metrics(withStock)),
  ]
  if (cluster.isWorker) answerPrimary(collect)
  else await startMetricsServer(config, log, async () => [await collect(true)])
}

/** Serves the merged metrics of one or more processes on METRICS_PORT, if it is set. */
async function startMetricsServer(
  { host, metricsPort: port }: Config,
  log: Logger,
  collect: () => Promise<readonly (readonly MetricFamily[])[]>,
): Promise<void> {
  if (port === undefined) return
  const server = await serveMetrics({ host, port, scrape: async () => expose(await collect()), log })
  closers.push(server.close)
}

ignoreInspectorSignal()
try {
  const env = readEnvironment()
  const config = loadConfig(env)
  const log = await openLog(config.logLevel)
  if (cluster.isPrimary) {
    for (const warning of settingWarnings(env, ['DATABASE_URL', 'READ_DATABASE_URL'])) log.warn(warning)
  }
  closeOnSignals(log, STOP_TIMEOUT_MS, closeAll)
  await start(config, log)
} catch (error) {
  // After a signal, its handler closes everything and exits.
  if (!stopping.signal.aborted) {
    if (!(error instanceof WorkerFailedError)) console.error(`petstore-inventory: ${explain(error)}`)
    setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref()
    await closeAll().catch(() => {})
    process.exit(1)
  }
}
