import { setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type ApiKeyCache, type ApiKeyIntervals, apiKeyIntervals, openApiKeyCache } from './api-keys/cache.ts'
import { type FixedKey, fixedApiKeys } from './api-keys/fixed-keys.ts'
import { apiKeyRepository } from './api-keys/repository.ts'
import type { Config } from './config/config.ts'
import { parseAddress } from './database/address.ts'
import { DatabaseUnavailableError } from './database/errors.ts'
import { isRefusal } from './database/failures.ts'
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
import { sessionTimeouts } from './database/server-status.ts'
import { isOutOfConnections } from './database/sqlstate.ts'
import { StandbyServer } from './database/standby.ts'
import { type AppOptions, type AppTimeouts, appTimeouts, buildApp } from './http/app.ts'
import { listenAddress } from './http/connections/listen-address.ts'
import { RequestStatistics } from './http/connections/request-statistics.ts'
import { coalesceChecks, type Readiness } from './http/health.ts'
import type { MonitoredStandbyOptions } from './inventory/list/monitored-standby.ts'
import { listSettings } from './inventory/list/statements.ts'
import { inventoryRepository } from './inventory/repository.ts'
import { InventoryStatistics, StandbyStatistics } from './inventory/statistics.ts'
import { StockSample } from './inventory/stock-sample.ts'
import { updateSettings } from './inventory/updates/statements.ts'
import { type ServiceMetrics, serviceMetrics } from './metrics/service.ts'
import { privileges } from './privileges.ts'
import type { Tracing } from './tracing/tracing.ts'

/**
 * Maximum connections waiting to be accepted; the system may have a lower limit (`net.core.somaxconn` in Linux). With Node's
 * default of 511, the system drops some of a thousand simultaneous connections, which clients retry only after one to three
 * seconds.
 */
const BACKLOG = 65_535

/**
 * How long the probe's connection is used. The API keys are read through it every few seconds, so that a new connection soon
 * shows where the address leads now, even while a former primary still responds on its open connections.
 */
const PROBE_LIFETIME_SECONDS = 5

/**
 * How long the metrics wait for the readiness check. A slower check counts as failed, as it does for a health checker, which
 * gives up after a second or two.
 */
const METRICS_CHECK_TIMEOUT_MS = 1500

/** The configuration of a service. */
export interface ServiceOptions extends Config {
  readonly databaseUrl: string
  /** The version of this software. */
  readonly version: string
  /** Absent if tracing is off. */
  readonly tracing: Tracing | undefined
}

/** The timeouts and intervals of a service, in milliseconds. */
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

/** The components of a service that does not listen yet. */
export interface ServiceParts {
  readonly app: AppOptions
  readonly apiKeys: ApiKeyCache
  /** The pool for readiness checks and API keys. */
  readonly probe: Database
  readonly metrics: ServiceMetrics
  /** Closes the database connections. Call it when no request is in flight. */
  close(): Promise<void>
}

/** A service that listens. */
export interface Service {
  /** The URL of the service. */
  readonly address: string
  readonly metrics: ServiceMetrics
  /** Stops listening, completes the requests in flight, and closes the database connections. */
  close(): Promise<void>
}

/**
 * Connects the service and listens. It also starts if the database is down, and responds with 503 until it is available.
 *
 * @throws what `serve` throws
 */
export async function startService(options: ServiceOptions, log: Logger): Promise<Service> {
  return serve(await connectService(options, serviceTimings, log), options, log)
}

/** Creates the components of a service. None of them connects to the database yet. */
export async function connectService(
  options: ServiceOptions,
  timings: ServiceTimings,
  log: Logger,
): Promise<ServiceParts> {
  const { databaseUrl: url, behindPooler, databasePoolSize, tracing } = options
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
  const database = open(databasePoolSize - 1, timings.requests, { settings: updateSettings })
  const lists = open(1, timings.lists, { settings: listSettings })
  // Readiness checks and API keys use a separate connection: a busy pool must not take the service out of rotation, or keep a
  // revoked key active.
  const probe = open(1, timings.probe, { lifetimeSeconds: PROBE_LIFETIME_SECONDS })

  const traced = (pool: Database, name: string): Database => tracing?.statements(pool, name) ?? pool
  const openStandby = (readUrl: string): Omit<MonitoredStandbyOptions, 'primary'> => {
    const server = new StandbyServer(parseAddress(readUrl), primaryServer)
    const pool = openDatabase({
      url: readUrl,
      server,
      size: 1,
      limits: timings.standby,
      settings: listSettings,
      onConnectionLost,
    })
    return {
      server,
      statistics: new StandbyStatistics(),
      pool: traced(pool, 'standby'),
      onChange(error) {
        if (error === undefined) log.info('lists are read from the standby')
        else
          log.warn(
            { problem: error.problem, err: error.cause },
            `lists are read from the primary, because the standby is not used: ${error.message}`,
          )
      },
    }
  }
  const standby = options.readDatabaseUrl === undefined ? undefined : openStandby(options.readDatabaseUrl)
  const inventoryStatistics = new InventoryStatistics(standby?.statistics)
  const inventory = inventoryRepository(traced(database, 'requests'), traced(lists, 'lists'), standby)

  const migrations = await knownMigrations()
  const readiness: Readiness = async () => {
    const notReady = await reasonNotReady(probe, migrations, privileges.server)
    // The probe opens a connection every few seconds, so it is the first to get none. Requests may still be served on theirs.
    return isOutOfConnections(notReady?.cause)
      ? reasonNotReady(database, migrations, privileges.server)
      : notReady
  }
  const findFixed = fixedApiKeys(options.apiKeys)
  const apiKeys = openApiKeyCache({
    repository: apiKeyRepository(probe),
    onStale: (err) => log.warn({ err }, 'the API keys cannot be read; the cached keys remain valid'),
    onRecovered: () => log.info('the API keys can be read again'),
    onUseNotRecorded: (err) => log.warn({ err }, 'the last use of API keys could not be recorded'),
    intervals: timings.apiKeys,
  })
  const requestStatistics = new RequestStatistics()
  const stockSample = new StockSample(probe)
  return {
    app: {
      logger: log,
      version: options.version,
      findApiKey: (key) => findFixed(key) ?? apiKeys.find(key),
      inventory,
      tracing,
      readiness,
      requestStatistics,
      inventoryStatistics,
      publicUrls: options.publicUrls,
      trustProxy: options.trustProxy,
      timeouts: timings.app,
    },
    apiKeys,
    probe,
    metrics: serviceMetrics({
      notReadyKind: coalesceChecks(() => notReadyKindOf(readiness)),
      stock: () => stockSample.read(),
      requests: requestStatistics,
      inventory: inventoryStatistics,
      pools: { requests: database, lists, probe, ...(standby && { standby: standby.pool }) },
      apiKeys,
    }),
    async close() {
      await inventory.standby?.close()
      await apiKeys.close()
      await Promise.all([database, lists, probe, standby?.pool].map((pool) => pool?.close()))
    },
  }
}

/**
 * Checks the database and listens. Takes over the components, and closes them if the service cannot start.
 *
 * @throws {DatabaseUnavailableError} if the database refuses the login, or its certificate cannot be trusted
 * @throws {UnsupportedServerError} if the server lacks a feature that the service needs
 * @throws what `listenAddress` and Fastify's `listen` throw, for example if the port is in use
 */
export async function serve(parts: ServiceParts, options: ServiceOptions, log: Logger): Promise<Service> {
  const { apiKeys, probe, metrics } = parts
  const { readiness } = parts.app
  const app = await buildApp(parts.app)
  const close = async (): Promise<void> => {
    await app.close()
    await parts.close()
  }

  try {
    await checkLogin(probe)
    const notReady = await readiness()
    if (notReady?.kind === 'unsupported')
      throw new UnsupportedServerError(notReady.reason, { cause: notReady.cause })
    if (notReady) log.warn({ err: notReady.cause }, `not ready: ${notReady.reason}`)
    if (options.behindPooler) await warnOfTimeouts(probe, log)
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

/** Returns why the service is not ready; undefined if it is. A slow check counts as `unreachable`. */
async function notReadyKindOf(readiness: Readiness): Promise<NotReadyKind | undefined> {
  const check = readiness().then((notReady) => notReady?.kind)
  const timeout = setTimeout<NotReadyKind>(METRICS_CHECK_TIMEOUT_MS, 'unreachable', { ref: false })
  return Promise.race([check, timeout])
}

/**
 * Tries the login, because a wrong password needs an operator. Ignores a database that is down, which recovers on its own.
 *
 * @throws {DatabaseUnavailableError} if the database refuses the login, or its certificate cannot be trusted
 */
async function checkLogin(database: Database): Promise<void> {
  try {
    await database.query('SELECT 1')
  } catch (error) {
    if (error instanceof DatabaseUnavailableError && isRefusal(error.cause)) throw error
  }
}

/** Behind a connection pooler, the service cannot set timeouts for its sessions, so they must be set for the role. */
async function warnOfTimeouts(database: Database, log: Logger): Promise<void> {
  const timeouts = await sessionTimeouts(database).catch(() => undefined)
  if (timeouts === undefined) return
  const missing = Object.entries(timeouts).flatMap(([name, limit]) => (limit === 0 ? [name] : []))
  if (missing.length > 0) {
    log.warn(
      `the database role sets no limit: ${missing.join(', ')}; an update may wait in the database for longer than its caller waits`,
    )
  }
  if (timeouts.lock_timeout > requestLimits.lock) {
    log.warn(
      `the database role sets lock_timeout to ${timeouts.lock_timeout} ms; a locked entry delays the other updates of its batch ` +
        `for that long, or they fail, so set it to ${requestLimits.lock} ms`,
    )
  }
}

/** Warns if there are no API keys, or if a key in API_KEYS has fewer than 32 characters and may be guessed. */
async function warnOfKeys(fixed: readonly FixedKey[], keyCache: ApiKeyCache, log: Logger): Promise<void> {
  const known = await keyCache.refresh().then(
    () => true,
    () => false,
  )
  if (known && keyCache.size === 0 && fixed.length === 0) {
    log.warn(
      'there is no API key, so every request under /v1 is refused; create one with "inventory keys create --name ops"',
    )
  }
  for (const { name, key } of fixed) {
    if (key.length < 32)
      log.warn(`the API key "${name}" is short enough to be guessed; use one of 32 random characters`)
  }
}
