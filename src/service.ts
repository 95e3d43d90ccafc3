import type { Logger } from 'pino'
import { ApiKeyCache, apiKeyIntervals } from './api-keys/cache.ts'
import { endsOfKeys } from './api-keys/stored-keys.ts'
import type { Config } from './config/load-config.ts'
import { readinessOf } from './database/admin/readiness.ts'
import { lastBackup } from './database/admin/server-status.ts'
import { type AppOptions, appTimeouts, buildApp } from './http/app.ts'
import { RequestStatistics } from './http/request-statistics.ts'
import { listReader } from './inventory/list/reads/reader.ts'
import { stockSample } from './inventory/reports/stock-sample.ts'
import { InventoryStatistics } from './inventory/statistics.ts'
import { updateRepository } from './inventory/updates/repository.ts'
import { serviceMetrics } from './metrics/service-metrics.ts'
import { createPools, databaseLimits } from './service/pools.ts'
import { checkDatabase, warnOfKeys, warnOfSettings } from './service/start-checks.ts'
import type { Tracing } from './tracing/tracing.ts'

/**
 * Maximum connections waiting to be accepted; the system may have a lower limit (`net.core.somaxconn` in Linux). With Node's
 * default of 511, the system drops some of a thousand simultaneous connections, which clients retry only after one to three
 * seconds.
 */
const BACKLOG = 65_535

/** The configuration of a service. */
export interface ServiceOptions extends Config {
  readonly databaseUrl: string
  /** The version of this software. */
  readonly version: string
  /** Absent if tracing is off. */
  readonly tracing: Tracing | undefined
}

/** The timeouts and intervals of a service, in milliseconds. */
export const serviceTimings = { ...databaseLimits, app: appTimeouts, apiKeys: apiKeyIntervals }

export type ServiceTimings = typeof serviceTimings

/** The components of a service that does not listen yet. */
export type ServiceParts = Awaited<ReturnType<typeof connectService>>

/** Creates the components of a service. None of them connects to the database yet. */
export async function connectService(options: ServiceOptions, timings: ServiceTimings, log: Logger) {
  const { version, publicUrls, trustProxy, tracing } = options
  const pools = createPools(options, timings, log)
  const { requests, lists, probe, forRequests } = pools
  const apiKeys = new ApiKeyCache(forRequests.probe, options.apiKeys, timings.apiKeys, log)
  const inventory = {
    reader: listReader(forRequests.lists),
    repository: updateRepository(forRequests.requests, forRequests.probe),
  }
  const inventoryStatistics = new InventoryStatistics()
  const requestStatistics = new RequestStatistics()
  const readiness = await readinessOf(probe, requests, pools.planned)
  const stock = stockSample(requests)
  const app: AppOptions = {
    logger: log,
    version,
    findApiKey: (key) => apiKeys.find(key),
    inventory,
    tracing,
    readiness,
    requestStatistics,
    inventoryStatistics,
    publicUrls,
    trustProxy,
    timeouts: timings.app,
  }
  return {
    pools,
    apiKeys,
    app,
    metrics: serviceMetrics({
      notReadyKind: async () => (await readiness())?.kind,
      stock,
      lastBackup: () => lastBackup(probe).catch(() => undefined),
      requests: requestStatistics,
      inventory: inventoryStatistics,
      pools: { requests, lists, probe },
      keysReadAt: () => apiKeys.refreshedAt,
      endsOfKeys: () => endsOfKeys(probe).catch(() => undefined),
    }),
    /** Closes the database connections. Call it when no request is in flight. */
    async close() {
      await apiKeys.close()
      await pools.close()
    },
  }
}

/**
 * Checks the database and listens. It also starts if the database is down, and responds with 503 until it is available. Takes over
 * the components, and closes them if the service cannot start. Returns the URL of the service, and a function that stops listening,
 * completes the requests in flight, and closes the database connections.
 *
 * @throws what `checkDatabase` throws, and what Fastify's `listen` throws, for example if the port is in use
 */
export async function serve(parts: ServiceParts, options: ServiceOptions, log: Logger) {
  const { apiKeys, pools } = parts
  const app = await buildApp(parts.app)
  const close = async (): Promise<void> => {
    await app.close()
    await parts.close()
  }

  try {
    await checkDatabase(parts.app.readiness, log)
    await warnOfSettings(pools.probe, options.behindPooler, log)
    await warnOfKeys(options.apiKeys, pools.probe, log)
    // Otherwise, the log would say only later that the keys cannot be read.
    await apiKeys.refresh().catch(() => {})
    const { host, port } = options
    const address = await app.listen({ host, port, backlog: BACKLOG })
    return { address, close }
  } catch (error) {
    await close()
    throw error
  }
}
