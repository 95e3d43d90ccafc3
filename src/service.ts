import { setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { Registry } from 'prom-client'
import { ApiKeyCache } from './api-keys/cache.ts'
import type { Config } from './config/load-config.ts'
import { createReadiness } from './database/readiness.ts'
import { type AppOptions, appTimeouts, buildApp } from './http/app.ts'
import { listReader } from './inventory/list/reads/reader.ts'
import { updateRepository } from './inventory/updates/repository.ts'
import { requestMetrics } from './metrics/request-metrics.ts'
import { serviceMetrics } from './metrics/service-metrics.ts'
import { createPools, databaseLimits } from './service/pools.ts'
import { checkDatabase, warnOfKeys } from './service/start-checks.ts'
import type { Tracing } from './tracing/tracing.ts'

/**
 * Maximum connections waiting to be accepted; the system may have a lower limit (`net.core.somaxconn` in Linux). With Node's default of
 * 511, some of a thousand simultaneous ones are dropped, and clients retry them only after one to three seconds.
 */
const BACKLOG = 65_535

export interface ServiceOptions extends Config {
  readonly databaseUrl: string
  /** The version of this software. */
  readonly version: string
  /** Absent if tracing is off. */
  readonly tracing: Tracing | undefined
}

/** How long a stop waits for statements that nobody waits for any more, such as an update of a client that was disconnected. */
const CLOSE_TIMEOUT_MS = 250

/** The timeouts of a service, in milliseconds. */
export const serviceTimings = { ...databaseLimits, app: appTimeouts }

export type ServiceTimings = typeof serviceTimings

/**
 * Starts a service, also if the database is down: then it responds with 503. Returns its URL, its metrics, and a function that completes
 * the requests in flight and closes everything.
 *
 * @param overrides replaces options of the HTTP side, for tests
 * @throws what `checkDatabase` and Fastify's `listen` throw, for example if the port is in use
 */
export async function startService(
  options: ServiceOptions,
  timings: ServiceTimings,
  log: Logger,
  overrides: Partial<AppOptions> = {},
) {
  const { host, port, version, publicUrls, trustProxy, tracing } = options
  const pools = createPools(options, timings, log)
  const { requests, lists, probe } = pools
  const apiKeys = new ApiKeyCache(probe, options.apiKeys, log)
  const readiness = createReadiness(probe, requests, pools.needs)
  const register = new Registry()
  const app = await buildApp({
    logger: log,
    version,
    apiKeys,
    inventory: { reader: listReader(lists), repository: updateRepository(requests, probe) },
    tracing,
    readiness,
    metrics: requestMetrics(register),
    publicUrls,
    trustProxy,
    timeouts: timings.app,
    ...overrides,
  })
  const metrics = serviceMetrics(register, { readiness, apiKeys, pools: { requests, lists, probe } })
  const close = async (): Promise<void> => {
    await app.close()
    await Promise.race([
      Promise.all([apiKeys.close(), pools.close()]),
      setTimeout(CLOSE_TIMEOUT_MS, undefined, { ref: false }),
    ])
  }

  try {
    await checkDatabase(readiness, log)
    await warnOfKeys(options.apiKeys, probe, log)
    // Now, so that the log says at the start if the keys cannot be read.
    await apiKeys.refresh().catch(() => {})
    return { address: await app.listen({ host, port, backlog: BACKLOG }), metrics, close }
  } catch (error) {
    await close()
    throw error
  }
}
