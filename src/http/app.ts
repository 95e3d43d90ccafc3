import { Server } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import fastify, { type FastifyBaseLogger } from 'fastify'
import type { FindApiKey } from '../api-keys/key.ts'
import { ErrorBody } from '../contract/api-error.ts'
import type { Readiness } from '../database/admin/readiness.ts'
import { type InventoryOptions, inventoryRoutes } from '../inventory/routes.ts'
import type { InventoryStatistics } from '../inventory/statistics.ts'
import { updateTimes } from '../inventory/updates/queue.ts'
import type { Tracing } from '../tracing/tracing.ts'
import { routedTarget } from './ambiguity.ts'
import { requireApiKey } from './authentication.ts'
import { handleErrors } from './error-handler.ts'
import { addHealthChecks } from './health.ts'
import { httpServer, httpTimeouts } from './http-server.ts'
import { MAX_BODY_BYTES, parseJsonBodies } from './json-body.ts'
import { refuseOtherMethods } from './methods.ts'
import { generateOpenApi } from './openapi.ts'
import { serveReference } from './reference.ts'
import { addRequestHooks, requestId, requestLog } from './request-hooks.ts'
import type { RequestStatistics } from './request-statistics.ts'
import { ajvOptions, validationError } from './validation.ts'

/** How long the service waits for its clients, and updates for their statements. */
export const appTimeouts = { ...httpTimeouts, updates: updateTimes }

export interface AppOptions {
  readonly logger: FastifyBaseLogger
  readonly version: string
  readonly findApiKey: FindApiKey
  readonly inventory: Pick<InventoryOptions, 'reader' | 'repository'>
  readonly readiness: Readiness
  readonly requestStatistics: RequestStatistics
  readonly inventoryStatistics: InventoryStatistics
  /** Absent if tracing is off. */
  readonly tracing?: Tracing | undefined
  /** Base addresses for the OpenAPI document, production first. */
  readonly publicUrls: readonly string[]
  /** Addresses or networks of proxies whose `X-Forwarded-For` is trusted. */
  readonly trustProxy: readonly string[]
  readonly timeouts: typeof appTimeouts
}

/** Builds the HTTP server with all of its options, and a function that stops it. */
export async function buildApp(options: AppOptions) {
  const { logger, requestStatistics: statistics, timeouts } = options
  const http = httpServer(timeouts, statistics, logger)
  let isStopping = false
  const app = fastify({
    loggerInstance: logger,
    logController: requestLog,
    genReqId: requestId,
    // With an empty list, Fastify would parse the addresses of each request.
    trustProxy: options.trustProxy.length > 0 && [...options.trustProxy],
    bodyLimit: MAX_BODY_BYTES,
    ajv: ajvOptions,
    schemaErrorFormatter: validationError,
    // High enough that the route's schema rejects a long parameter, after authentication, and not the router.
    routerOptions: { maxParamLength: 16_384 },
    // While it closes, requests are answered with `Connection: close`, and what stays open is then closed.
    return503OnClosing: false,
    forceCloseConnections: true,
    rewriteUrl: ({ url = '' }) => routedTarget(url),
    serverFactory: (handler) => http.create(handler),
    clientErrorHandler: ({ code }, socket) => void http.refuse(code, socket),
  })
  app.addHook('preClose', http.idle)
  parseJsonBodies(app)
  app.addSchema(ErrorBody)
  app.decorateRequest('apiKey', null)
  options.tracing?.requests(app)
  addRequestHooks(app, statistics)
  handleErrors(app)
  await generateOpenApi(app, options.publicUrls)

  await app.register(async (publicScope) => {
    const refuseOthers = refuseOtherMethods(publicScope)
    addHealthChecks(publicScope, options.version, options.readiness, () => isStopping)
    serveReference(publicScope)
    refuseOthers()
  })

  await app.register(
    async (v1) => {
      await requireApiKey(v1, options.findApiKey)
      const refuseOthers = refuseOtherMethods(v1)
      await v1.register(inventoryRoutes, {
        ...options.inventory,
        statistics: options.inventoryStatistics,
        tracer: options.tracing?.batches,
        updateTimes: timeouts.updates,
      })
      refuseOthers()
    },
    { prefix: '/v1' },
  )

  /**
   * First serves as before, so that load balancers learn of the stop from its health check, then closes the port, and only then says
   * `Connection: close`: a client that reconnects while the port closes could lose its request.
   */
  const close = async (): Promise<void> => {
    isStopping = true
    if (app.server.listening) {
      await setTimeout(timeouts.drainMs)
      // Not `close` of the HTTP server, which also closes idle connections on which a request may be arriving.
      Server.prototype.close.call(app.server)
    }
    await app.close()
  }
  return { app, close }
}
