import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import fastify, { type FastifyBaseLogger, type FastifyInstance, type FastifyReply } from 'fastify'
import type { FindApiKey } from '../api-keys/key.ts'
import { ErrorBody } from '../contract/errors.ts'
import type { InventoryRepository } from '../inventory/repository.ts'
import { inventoryRoutes } from '../inventory/routes.ts'
import type { InventoryStatistics } from '../inventory/statistics.ts'
import { type BatchTracer, type UpdateTimes, updateTimes } from '../inventory/updates/queue.ts'
import { requireApiKey } from './authentication.ts'
import { Admission, keepSlotsInHandlers } from './connections/admission.ts'
import { Connections, type SharedPort } from './connections/connections.ts'
import { clientErrorHandler, connectionRefusals } from './connections/malformed-requests.ts'
import { enforceProtocol, refuseBrokenMessages } from './connections/protocol.ts'
import type { RequestStatistics } from './connections/request-statistics.ts'
import { handleErrors, sendError } from './error-handler.ts'
import { healthRoutes, isHealthCheck, type Readiness, type SharedReadiness } from './health.ts'
import { BODY_LIMIT, readJsonBodies } from './json-body.ts'
import { knowEveryMethod, refuseOtherMethods } from './methods.ts'
import { describeApi, serveDescription } from './openapi.ts'
import { OutageLog } from './outage-log.ts'
import { serveReference } from './reference.ts'
import { logRequest, requestId, requestLog } from './request-log.ts'
import { ajvOptions, describeFault } from './validation.ts'

/** How long the service waits for its clients, and updates for their statements, in milliseconds. */
export interface AppTimeouts {
  /** For a request to arrive, its body included. */
  readonly arrivalMs: number
  /** For a client that stops reading the response that it is being sent. */
  readonly stallMs: number
  readonly updates: UpdateTimes
}

export const appTimeouts: AppTimeouts = { arrivalMs: 10_000, stallMs: 30_000, updates: updateTimes }

/**
 * How long a connection may be idle between two requests, in milliseconds. A client that sends a request just when the
 * service closes the connection loses it, so clients and proxies must be the ones who close: Go, reqwest and Azure keep
 * an idle connection for 90 seconds, OkHttp for 300, load balancers of AWS for 60 and of Google Cloud for 600.
 */
const KEEP_ALIVE_MS = 620_000

export interface AppOptions {
  readonly logger: FastifyBaseLogger
  /** The version of this software. */
  readonly version: string
  readonly findApiKey: FindApiKey
  readonly inventory: InventoryRepository
  readonly readiness: Readiness
  /** Absent where no other process shares the port. */
  readonly primary?: (SharedPort & SharedReadiness) | undefined
  /** Counts the requests from now on. */
  readonly requestStatistics: RequestStatistics
  /** Counts what the inventory does for them. */
  readonly inventoryStatistics: InventoryStatistics
  /** Absent where nothing is traced. */
  readonly tracing?: RequestTracing | undefined
  /** Base addresses for the OpenAPI document, production first. */
  readonly publicUrls: readonly string[]
  /** Proxies whose `X-Forwarded-For` is believed, as IP addresses or networks. */
  readonly trustProxy: readonly string[]
  readonly timeouts: AppTimeouts
}

/** Traces requests. */
export interface RequestTracing {
  /** Adds the first of all hooks. */
  requests(app: FastifyInstance): void
  readonly batches: BatchTracer
}

/** The service's HTTP side with all of its options; what tests drive is what production runs. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const connections = new Connections()
  const { requestStatistics, timeouts } = options
  const outages = new OutageLog(options.logger)
  const refusals = connectionRefusals(connections, requestStatistics, options.logger)
  let closing = false
  /**
   * Has the response say whether its connection ends where Node would not know. The framework sets `Connection: close`
   * after a faulty body, but a client that is still sending the body would lose the answer to the reset: on an open
   * connection Node discards the rest, for as long as a request may take to arrive. The header is replaced, because
   * once it is removed Node says nothing about the connection, not even that it closes it.
   */
  const announceEnd = (reply: FastifyReply): void => {
    if (!closing && !reply.hasHeader('connection')) return
    const ends = closing ? connections.isLast(reply.raw) : !reply.raw.shouldKeepAlive
    reply.header('connection', ends ? 'close' : 'keep-alive')
    if (!closing && !ends) reply.header('keep-alive', `timeout=${KEEP_ALIVE_MS / 1000}`)
  }
  const app = fastify({
    loggerInstance: options.logger,
    logController: requestLog,
    genReqId: requestId,
    trustProxy: [...options.trustProxy],
    bodyLimit: BODY_LIMIT,
    ajv: ajvOptions,
    schemaErrorFormatter: describeFault,
    // Out of the router's way, so that a long parameter is refused by the route's schema, after the key was checked.
    routerOptions: { maxParamLength: 16_384 },
    frameworkErrors: (error, request, reply) => {
      reply.header('x-request-id', request.id)
      logRequest(request, reply, requestStatistics, outages, admission.slotOf(reply.raw)?.since)
      // The hooks do not run for these.
      announceEnd(reply)
      sendError(error, request, reply, outages)
    },
    clientErrorHandler: clientErrorHandler(connections, refusals),
    requestTimeout: timeouts.arrivalMs,
    connectionTimeout: timeouts.stallMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    http: {
      headersTimeout: timeouts.arrivalMs,
      // Node looks every 30 seconds by itself, which would make up to 40 seconds of the 10.
      connectionsCheckingInterval: 1000,
      requireHostHeader: false,
    },
    // Requests that come on open connections while the process stops are answered as ever.
    return503OnClosing: false,
  }).withTypeProvider<TypeBoxTypeProvider>()

  // Answers a client that closes its side behind its request. Node has always had this switch, but in no type.
  Object.assign(app.server, { httpAllowHalfOpen: true })
  connections.watch(app.server)
  const admission = new Admission({
    handler: app.routing,
    isUrgent: isHealthCheck,
    statistics: requestStatistics,
  })
  app.server.off('request', app.routing)
  admission.schedule(app.server)
  refuseBrokenMessages(app.server, refusals)
  app.addHook('preClose', async () => {
    closing = true
    await connections.stop(app.server, options.primary)
  })
  app.addHook('onSend', (_request, reply, payload, done) => {
    announceEnd(reply)
    done(null, payload)
  })
  knowEveryMethod(app)
  readJsonBodies(app)
  app.addSchema(ErrorBody)
  app.decorateRequest('apiKey', null)
  app.decorateRequest('slot', null)
  options.tracing?.requests(app)
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    const slot = admission.slotOf(reply.raw)
    request.slot = slot ?? null
    logRequest(request, reply, requestStatistics, outages, slot?.since)
    connections.begin(() => done(slot?.refusal))
  })
  handleErrors(app, outages)
  enforceProtocol(app, connections)
  await describeApi(app, options.publicUrls)

  await app.register(async (open) => {
    const refuseOthers = refuseOtherMethods(open)
    await open.register(healthRoutes, {
      version: options.version,
      readiness: options.readiness,
      shared: options.primary,
      isClosing: () => closing,
    })
    serveDescription(open)
    serveReference(open)
    refuseOthers()
  })

  await app.register(
    async (v1) => {
      keepSlotsInHandlers(v1)
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
