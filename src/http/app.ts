import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import fastify, { type FastifyBaseLogger, type FastifyInstance, type FastifyReply } from 'fastify'
import type { FindApiKey } from '../api-keys/key.ts'
import { ErrorBody } from '../contract/errors.ts'
import type { InventoryRepository } from '../inventory/repository.ts'
import { inventoryRoutes } from '../inventory/routes.ts'
import type { InventoryStatistics } from '../inventory/statistics.ts'
import { type BatchTracer, type UpdateTimes, updateTimes } from '../inventory/updates/queue.ts'
import { requireApiKey } from './authentication.ts'
import { Admission } from './connections/admission.ts'
import { Connections } from './connections/connections.ts'
import { GracefulStop } from './connections/graceful-stop.ts'
import { clientErrorHandler, connectionRefusals } from './connections/malformed-requests.ts'
import { afterUpgrade, enforceProtocol, headerError, refuseUnframedMessages } from './connections/protocol.ts'
import type { RequestStatistics } from './connections/request-statistics.ts'
import { keepSlotsInHandlers } from './connections/slot.ts'
import { refusePreflights } from './cors.ts'
import { handleErrors, sendError } from './error-handler.ts'
import { healthRoutes, isHealthCheck, type Readiness } from './health.ts'
import { MAX_BODY_BYTES, parseJsonBodies } from './json-body.ts'
import { omitLengthOfNotModified, refuseOtherMethods, routeEveryMethod } from './methods.ts'
import { generateOpenApi, serveOpenApi } from './openapi.ts'
import { serveReferencePage } from './reference.ts'
import { logRequest, requestId, requestLog } from './request-log.ts'
import { ajvOptions, validationError } from './validation.ts'

/** How long the service waits for its clients, and updates for their statements. */
export interface AppTimeouts {
  /** For a client to send a request, including its body. */
  readonly arrivalMs: number
  /** For a client that has stopped reading a response, before the connection is closed. */
  readonly stallMs: number
  readonly updates: UpdateTimes
}

export const appTimeouts: AppTimeouts = { arrivalMs: 10_000, stallMs: 30_000, updates: updateTimes }

/**
 * How long a connection may be idle between requests. It must exceed the idle timeout of clients and proxies, so that they
 * close the connection: a request sent just as the service closes it would be lost. Go, reqwest and Azure keep an idle
 * connection for 90 seconds, OkHttp for 300, AWS load balancers for 60 and Google Cloud's for 600.
 */
const KEEP_ALIVE_TIMEOUT_MS = 620_000

export interface AppOptions {
  readonly logger: FastifyBaseLogger
  /** The version of this software. */
  readonly version: string
  readonly findApiKey: FindApiKey
  readonly inventory: InventoryRepository
  readonly readiness: Readiness
  /** Updated for every request. */
  readonly requestStatistics: RequestStatistics
  /** Updated for every list and batch of updates. */
  readonly inventoryStatistics: InventoryStatistics
  /** Absent if tracing is off. */
  readonly tracing?: RequestTracing | undefined
  /** Base addresses for the OpenAPI document, production first. */
  readonly publicUrls: readonly string[]
  /** Proxies whose `X-Forwarded-For` is trusted, as IP addresses or networks. */
  readonly trustProxy: readonly string[]
  readonly timeouts: AppTimeouts
}

/** Traces requests and batches of updates. */
export interface RequestTracing {
  /** Adds the hooks that trace requests. They must run before all others. */
  requests(app: FastifyInstance): void
  readonly batches: BatchTracer
}

/** Builds the HTTP server with all of its options. Tests use it, too, so they run what production runs. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const connections = new Connections()
  const gracefulStop = new GracefulStop(connections)
  const { requestStatistics, timeouts } = options
  const refusals = connectionRefusals(connections, requestStatistics, options.logger)
  let isClosing = false
  /**
   * Sets `Connection` while the server is closing and where Fastify has set it. Fastify sets `Connection: close` after an
   * invalid body, and a client that is still sending that body would lose the response to a connection reset. If the
   * connection stays open, Node discards the rest of the body, for at most the request timeout. The header must be
   * replaced, not removed: without it, Node no longer announces that it closes a connection.
   */
  const setConnectionHeader = (reply: FastifyReply): void => {
    if (!isClosing && !reply.hasHeader('connection')) return
    const closes = isClosing ? connections.isLast(reply.raw) : !reply.raw.shouldKeepAlive
    reply.header('connection', closes ? 'close' : 'keep-alive')
    if (!isClosing && !closes) reply.header('keep-alive', `timeout=${KEEP_ALIVE_TIMEOUT_MS / 1000}`)
  }
  const app = fastify({
    loggerInstance: options.logger,
    logController: requestLog,
    genReqId: requestId,
    trustProxy: [...options.trustProxy],
    bodyLimit: MAX_BODY_BYTES,
    ajv: ajvOptions,
    schemaErrorFormatter: validationError,
    // High enough that the route's schema rejects a long parameter, after authentication, and not the router.
    routerOptions: { maxParamLength: 16_384 },
    frameworkErrors: (error, request, reply) => {
      reply.header('x-request-id', request.id)
      logRequest(request, reply, requestStatistics, admission.slotOf(reply.raw)?.readySince)
      // Hooks do not run for these errors.
      afterUpgrade(request.raw, reply.raw, () => {
        setConnectionHeader(reply)
        sendError(headerError(request.raw) ?? error, request, reply)
      })
    },
    clientErrorHandler: clientErrorHandler(refusals),
    requestTimeout: timeouts.arrivalMs,
    connectionTimeout: timeouts.stallMs,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: {
      headersTimeout: timeouts.arrivalMs,
      // Node's default of 30 seconds could extend the request timeout from 10 to 40 seconds.
      connectionsCheckingInterval: 1000,
      requireHostHeader: false,
    },
    // Requests on open connections are served as usual during the drain period.
    return503OnClosing: false,
  }).withTypeProvider<TypeBoxTypeProvider>()

  // Serves clients that half-close the connection after a request. Node's types lack this option.
  Object.assign(app.server, { httpAllowHalfOpen: true })
  connections.watch(app.server)
  const admission = new Admission({
    handler: app.routing,
    isUrgent: isHealthCheck,
    statistics: requestStatistics,
  })
  app.server.off('request', app.routing)
  admission.schedule(app.server)
  refuseUnframedMessages(app.server, refusals)
  app.addHook('preClose', async () => {
    isClosing = true
    await gracefulStop.stop(app.server)
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    afterUpgrade(request.raw, reply.raw, () => {
      setConnectionHeader(reply)
      done(null, payload)
    })
  })
  routeEveryMethod(app)
  omitLengthOfNotModified(app)
  parseJsonBodies(app)
  app.addSchema(ErrorBody)
  app.decorateRequest('apiKey', null)
  app.decorateRequest('slot', null)
  options.tracing?.requests(app)
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    const slot = admission.slotOf(reply.raw)
    request.slot = slot ?? null
    logRequest(request, reply, requestStatistics, slot?.readySince)
    gracefulStop.startRequest(() => done(slot?.refusal))
  })
  handleErrors(app)
  enforceProtocol(app, connections, refusals)
  await generateOpenApi(app, options.publicUrls)

  await app.register(async (publicScope) => {
    const refuseOthers = refuseOtherMethods(publicScope)
    await publicScope.register(healthRoutes, {
      version: options.version,
      readiness: options.readiness,
      isClosing: () => isClosing,
    })
    serveOpenApi(publicScope)
    serveReferencePage(publicScope)
    refuseOthers()
  })

  await app.register(
    async (v1) => {
      keepSlotsInHandlers(v1)
      refusePreflights(v1)
      await requireApiKey(v1, options.findApiKey)
      const refuseOthers = refuseOtherMethods(v1)
      await v1.register(inventoryRoutes, {
        repository: options.inventory,
        statistics: options.inventoryStatistics,
        tracer: options.tracing?.batches,
        updateTimes: timeouts.updates,
      })
      refuseOthers()
    },
    { prefix: '/v1' },
  )

  return app
}
