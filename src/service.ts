import { setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type ApiKeyCache, type ApiKeyIntervals, apiKeyIntervals, openApiKeyCache } from './api-keys/cache.ts'
import { type FixedKey, fixedApiKeys } from './api-keys/fixed-keys.ts'
import { apiKeyRepository } from './api-keys/repository.ts'
import type { Config } from './config/config.ts'
import { parseAddress } from './database/address.ts'
import { DatabaseUnavailableError, isRefusal } from './database/failures.ts'
import { knownMigrations } from './database/migration-files.ts'
import {
  type Database,
  type DatabaseOptions,
  listLimits,
  openDatabase,
  probeLimits,
  requestLimits,
  standbyLimits,
  type TimeLimits,
} from './database/pool.ts'
import { PrimaryServer } from './database/primary.ts'
import { type NotReadyKind, reasonNotReady, UnsupportedServerError } from './database/readiness.ts'
import { unsetTimeouts } from './database/server-status.ts'
import { StandbyServer } from './database/standby.ts'
import { type AppOptions, type AppTimeouts, appTimeouts, buildApp } from './http/app.ts'
import { listenAddress } from './http/connections/listen-address.ts'
import { RequestStatistics } from './http/connections/request-statistics.ts'
import { coalesceChecks, READINESS_MAX_AGE_MS, type Readiness, type SharedReadiness } from './http/health.ts'
import type { StandbyReadsOptions } from './inventory/list/standby-reads.ts'
import { inventoryRepository } from './inventory/repository.ts'
import { InventoryStatistics, StandbyStatistics } from './inventory/statistics.ts'
import { StockSample } from './inventory/stock-sample.ts'
import { updateSettings } from './inventory/updates/statements.ts'
import type { MetricFamily } from './metrics/families.ts'
import { serviceMetrics } from './metrics/service.ts'
import type { Primary } from './process/primary.ts'
import type { Tracing } from './tracing/tracing.ts'

/**
 * The most connections that wait to be accepted; the system has a limit of its own (`net.core.somaxconn` in Linux). With
 * Node's 511, a thousand callers who connect at once make the system drop some, who try again after a second or three.
 */
const BACKLOG = 65_535

/**
 * How long the connection of the probe is used, in seconds. The keys are read every few seconds, so that a new one shows
 * where the address leads now, even while a former primary goes on answering on the connections that it has.
 */
const PROBE_LIFETIME_SECONDS = 5

/**
 * How long the metrics wait for a check of the database, in milliseconds. A check that takes longer counts as failed, as
 * it does for a prober, which gives up after a second or two.
 */
const METRICS_CHECK_TIMEOUT_MS = 1500

/** Where a service runs: the configuration, with the database settled and a part of the joint connections. */
export interface ServiceOptions extends Config {
  readonly databaseUrl: string
  /** The version of this software. */
  readonly version: string
  /** The most connections that it opens to serve requests; it needs one more for `/readyz` and the keys. */
  readonly connections: number
  /** Absent where nothing is traced. */
  readonly tracing: Tracing | undefined
  /** Absent where no other process shares the port. */
  readonly primary: Primary | undefined
}

/** The timeouts and intervals of a service's parts, all in milliseconds. */
export interface ServiceTimings {
  readonly app: AppTimeouts
  readonly apiKeys: ApiKeyIntervals
  readonly requests: TimeLimits
  readonly lists: TimeLimits
  readonly probe: TimeLimits
  readonly standby: TimeLimits
}

export const serviceTimings: ServiceTimings = {
  app: appTimeouts,
  apiKeys: apiKeyIntervals,
  requests: requestLimits,
  lists: listLimits,
  probe: probeLimits,
  standby: standbyLimits,
}

/** The parts of a service that does not listen yet. */
export interface ServiceParts {
  readonly app: AppOptions
  readonly apiKeys: ApiKeyCache
  /** The connection for readiness and the keys. */
  readonly probe: Database
  metrics: Service['metrics']
  /** Leaves the database; to be called when no request is in flight. */
  close(): Promise<void>
}

/** A service that listens. */
export interface Service {
  readonly address: string
  /**
   * What it has done and how it is, as of now. Asks the database whether it can serve, for at most 1.5 seconds, and if
   * `withStock` is set for the number of entries by status, at most once a minute.
   */
  metrics(withStock: boolean): Promise<readonly MetricFamily[]>
  /** Takes no more connections, answers what is in flight, and leaves the database. */
  close(): Promise<void>
}

/**
 * Opens the database and listens. A database that is away is no error: the service answers 503 until it is there.
 *
 * @throws what `serve` does
 */
export async function startService(options: ServiceOptions, log: Logger): Promise<Service> {
  return serve(await connectService(options, serviceTimings, log), options, log)
}

/** Makes the parts of a service and connects them to each other. None of them connects to the database yet. */
export async function connectService(
  options: ServiceOptions,
  timings: ServiceTimings,
  log: Logger,
): Promise<ServiceParts> {
  const { databaseUrl: url, behindPooler, connections, tracing, primary } = options
  const onConnectionLost = (reason: string): void => log.warn({ reason }, 'a database connection was lost')
  const primaryServer = new PrimaryServer({
    address: parseAddress(url),
    onRenew: (reason) => log.warn({ reason }, 'all database connections are renewed'),
    onServer: ({ synchronousCommit }) => {
      if (synchronousCommit !== 'off') return
      log.warn(
        'synchronous_commit is off for the role, its database or the server: a crash of PostgreSQL loses acknowledged updates; set it to on',
      )
    },
  })
  const open = (size: number, limits: TimeLimits, rest: Partial<DatabaseOptions> = {}): Database =>
    openDatabase({ url, server: primaryServer, size, limits, behindPooler, onConnectionLost, ...rest })
  const database = open(connections - 1, timings.requests, { settings: updateSettings })
  const lists = open(1, timings.lists)
  // Readiness and the keys have a connection of their own: a pool that is merely busy must not take the service out of
  // rotation, nor keep a revoked key alive.
  const probe = open(1, timings.probe, { lifetimeSeconds: PROBE_LIFETIME_SECONDS })

  const traced = (pool: Database, name: string): Database => tracing?.statements(pool, name) ?? pool
  const inventoryStatistics = new InventoryStatistics()
  const openStandby = (readUrl: string): Omit<StandbyReadsOptions, 'primary'> => {
    const server = new StandbyServer(parseAddress(readUrl), primaryServer)
    const statistics = new StandbyStatistics()
    inventoryStatistics.standby = statistics
    return {
      server,
      statistics,
      standby: openDatabase({ url: readUrl, server, size: 1, limits: timings.standby, onConnectionLost }),
      onChange(error) {
        if (error === undefined) log.info('lists are read from the standby')
        else
          log.warn(
            { problem: error.problem, err: error.cause },
            `lists are read from the primary, as the standby is not used: ${error.message}`,
          )
      },
    }
  }
  const standby = options.readDatabaseUrl === undefined ? undefined : openStandby(options.readDatabaseUrl)
  const inventory = inventoryRepository(
    traced(database, 'requests'),
    traced(lists, 'lists'),
    standby && { ...standby, standby: traced(standby.standby, 'standby') },
  )

  const migrations = await knownMigrations()
  const readiness: Readiness = () => reasonNotReady(probe, migrations)
  const findFixed = fixedApiKeys(options.apiKeys)
  const apiKeys = openApiKeyCache({
    repository: apiKeyRepository(probe),
    onStale: (err) => log.warn({ err }, 'the API keys cannot be read; those last known go on being valid'),
    onRecovered: () => log.info('the API keys can be read again'),
    onUseNotRecorded: (err) => log.warn({ err }, 'the last use of API keys could not be noted'),
    intervals: timings.apiKeys,
  })
  const requestStatistics = new RequestStatistics()
  const readinessNow = coalesceChecks(() => kindOf(readiness))
  const stockSample = new StockSample(probe)
  return {
    app: {
      logger: log,
      version: options.version,
      findApiKey: (key) => findFixed(key) ?? apiKeys.find(key),
      inventory,
      tracing,
      readiness,
      primary,
      requestStatistics,
      inventoryStatistics,
      publicUrls: options.publicUrls,
      trustProxy: options.trustProxy,
      timeouts: timings.app,
    },
    apiKeys,
    probe,
    async metrics(withStock) {
      const [notReady, stock] = await Promise.all([readinessNow(), withStock ? stockSample.read() : []])
      return serviceMetrics({
        notReady,
        stock,
        requests: requestStatistics,
        inventory: inventoryStatistics,
        pools: { requests: database, lists, probe, ...(standby && { standby: standby.standby }) },
        keysReadAt: () => apiKeys.readAt,
        keyLifetimes: () => apiKeys.lifetimes(),
      })
    },
    async close() {
      await inventory.standby?.close()
      await apiKeys.close()
      await Promise.all([database, lists, probe, standby?.standby].map((pool) => pool?.close()))
    },
  }
}

/**
 * Checks the database and listens. The service owns its parts from now on, and closes them if it cannot start.
 *
 * @throws {DatabaseUnavailableError} when the database refuses this service, which waiting would not change
 * @throws {UnsupportedServerError} when the server lacks a feature that the service needs
 * @throws what `listenAddress` and `listen` do, such as a port in use
 */
export async function serve(parts: ServiceParts, options: ServiceOptions, log: Logger): Promise<Service> {
  const { apiKeys, probe, metrics } = parts
  const { readiness, primary } = parts.app
  const app = await buildApp(parts.app)
  const close = async (): Promise<void> => {
    await app.close()
    await parts.close()
  }

  try {
    await refuseWrongLogin(probe)
    const notReady = await readiness()
    if (notReady?.kind === 'unsupported')
      throw new UnsupportedServerError(notReady.reason, { cause: notReady.cause })
    if (notReady) log.warn({ err: notReady.cause }, `not ready: ${notReady.reason}`)
    if (notReady && primary) await waitForOwnOrNoReadiness(readiness, primary)
    if (options.behindPooler) await warnOfMissingLimits(probe, log)
    await warnOfKeys(options.apiKeys, apiKeys, log)
    const host = await listenAddress(options.host)
    const address = await app.listen({ host, port: options.port, backlog: BACKLOG })
    parts.app.inventory.standby?.watch()
    return { address, metrics, close }
  } catch (error) {
    await close()
    throw error
  }
}

/**
 * Resolves when this process is ready or the other workers are not either: one that is not ready would make a service
 * that works without it not ready, while one that never listens could not answer that the service is not.
 */
async function waitForOwnOrNoReadiness(own: Readiness, primary: SharedReadiness): Promise<void> {
  while ((await primary.readiness()) === undefined) {
    await setTimeout(READINESS_MAX_AGE_MS)
    if ((await own()) === undefined) return
  }
}

/** Why the service is not ready; undefined when it is. */
async function kindOf(readiness: Readiness): Promise<NotReadyKind | undefined> {
  const check = readiness().then(
    (notReady) => notReady?.kind,
    (): NotReadyKind => 'unreachable',
  )
  const timeout = setTimeout<NotReadyKind>(METRICS_CHECK_TIMEOUT_MS, 'unreachable', { ref: false })
  return Promise.race([check, timeout])
}

/** A database that is down comes back on its own; a wrong password does not, so the start fails. */
async function refuseWrongLogin(database: Database): Promise<void> {
  try {
    await database.query('SELECT 1')
  } catch (error) {
    if (error instanceof DatabaseUnavailableError && isRefusal(error.cause)) throw error
  }
}

/** Behind a pooler, the role must bring what a session of this service would otherwise set for itself. */
async function warnOfMissingLimits(database: Database, log: Logger): Promise<void> {
  const missing = await unsetTimeouts(database).catch(() => [])
  if (missing.length > 0) {
    log.warn(
      `the database role sets no limit: ${missing.join(', ')}; an update may wait there for longer than its caller`,
    )
  }
}

/** Random keys have 32 characters or more; one that can be guessed is as good as none. */
async function warnOfKeys(fixed: readonly FixedKey[], keyCache: ApiKeyCache, log: Logger): Promise<void> {
  const known = await keyCache.refresh().then(
    () => true,
    () => false,
  )
  if (known && keyCache.size === 0 && fixed.length === 0) {
    log.warn(
      'there is no API key, so every request under /v1 is refused; make one with "inventory keys create --name ops"',
    )
  }
  for (const { name, key } of fixed) {
    if (key.length < 32)
      log.warn(`the API key "${name}" is short enough to be guessed; use one of 32 random characters`)
  }
}
