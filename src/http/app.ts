import fastify, { type FastifyBaseLogger } from 'fastify'
import type { Readiness } from '../database/readiness.ts'
import { type InventoryOptions, inventoryRoutes } from '../inventory/routes.ts'
import { updateTimes } from '../inventory/updates/queue.ts'
import type { RequestMetrics } from '../metrics/request-metrics.ts'
import type { Tracing } from '../tracing/tracing.ts'
import { type AuthenticationOptions, authentication } from './authentication.ts'
import { connections } from './connections.ts'
import { errors } from './error-handler.ts'
import { health } from './health.ts'
import { jsonBodies, MAX_BODY_BYTES } from './json-body.ts'
import { toRoutedTarget } from './malformed-requests.ts'
import { openApi } from './openapi.ts'
import { reference } from './reference.ts'
import { refusals, refuse } from './refusals.ts'
import { logController, readRequestId, requestLog } from './request-log.ts'
import { httpTimeouts, serverOptions } from './server-options.ts'
import { ajvOptions, validationError } from './validation.ts'

/** How long the service waits for its clients, and updates for their statements. */
export const appTimeouts = { ...httpTimeouts, updates: updateTimes }

export interface AppOptions extends AuthenticationOptions {
  readonly logger: FastifyBaseLogger
  readonly version: string
  readonly inventory: Pick<InventoryOptions, 'reader' | 'repository'>
  readonly readiness: Readiness
  readonly metrics: RequestMetrics
  /** Absent if tracing is off. */
  readonly tracing?: Tracing | undefined
  /** Base addresses for the OpenAPI document, production first. */
  readonly publicUrls: readonly string[]
  /** Addresses or networks of proxies whose `X-Forwarded-For` is trusted. */
  readonly trustProxy: readonly string[]
  readonly timeouts: typeof appTimeouts
}

/** Builds the application from its plugins. Its `close` first serves on for `drainMs`, and then completes the requests in flight. */
export async function buildApp(options: AppOptions) {
  const { logger, version, readiness, metrics, tracing, publicUrls, trustProxy, timeouts } = options
  const stopping = new AbortController()
  const app = fastify({
    ...serverOptions(timeouts),
    loggerInstance: logger,
    logController,
    genReqId: readRequestId,
    // With an empty list, Fastify would parse the addresses of each request.
    trustProxy: trustProxy.length > 0 && [...trustProxy],
    bodyLimit: MAX_BODY_BYTES,
    ajv: ajvOptions,
    schemaErrorFormatter: validationError,
    // High enough that the route's schema rejects a long parameter, after authentication, and not the router.
    routerOptions: { maxParamLength: 16_384 },
    rewriteUrl: toRoutedTarget,
  })
  if (tracing) await app.register(tracing.requests)
  await app.register(connections, { timeouts, metrics, stopping })
  await app.register(requestLog, { metrics })
  await app.register(errors)
  await app.register(refusals)
  await app.register(jsonBodies)
  await app.register(openApi, { publicUrls })
  await app.register(health, { version, readiness, stopping: stopping.signal })
  await app.register(reference)
  await app.register(
    async (v1) => {
      await v1.register(authentication, options)
      v1.setNotFoundHandler(refuse)
      await v1.register(inventoryRoutes, {
        ...options.inventory,
        metrics,
        tracer: tracing?.batches,
        updateTimes: timeouts.updates,
      })
    },
    { prefix: '/v1' },
  )
  return app
}
