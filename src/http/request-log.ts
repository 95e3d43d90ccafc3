import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import fp from 'fastify-plugin'
import type { RequestMetrics } from '../metrics/request-metrics.ts'
import { findAmbiguity, findPath } from './malformed-requests.ts'

/** Maximum characters of a path in the log. Clients can send 16 kB. */
const MAX_LOGGED_PATH = 256

/** Methods with a series of their own; all others count as `_OTHER` (semantic conventions, `http.request.method`). */
const NAMED_METHOD = /^(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT|QUERY|TRACE)$/

/** Disables Fastify's own two lines for each request: `recordEnd` writes one. */
export const logController = new LogController({
  disableRequestLogging: true,
  requestIdLogLabel: 'requestId',
})

/** Returns the id of a request: its `X-Request-Id`, unless that could forge log lines in other programs, or a new one. */
export function readRequestId({ headers }: IncomingMessage): string {
  const id = headers['x-request-id']
  return typeof id === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(id) ? id : randomUUID()
}

/** Begins and ends each request: its id, its log line, its metrics. Rejects an ambiguous one. */
export const requestLog = fp<{ readonly metrics: RequestMetrics }>(
  async (app, { metrics }) => {
    app.addHook('onRequest', (request, reply, done) => {
      reply.header('x-request-id', request.id)
      recordEnd(request, reply, metrics)
      const error = findAmbiguity(request.raw)
      // What follows could be a smuggled request.
      if (error !== undefined) reply.raw.setHeader('connection', 'close')
      done(error)
    })
  },
  { name: 'request-log', dependencies: ['connections'] },
)

/** Writes one line and counts the request when it has ended, with or without a response. The path is logged without the query. */
function recordEnd(request: FastifyRequest, { raw }: FastifyReply, metrics: RequestMetrics): void {
  const start = performance.now()
  // Read now: a socket that its client has closed has no address any more.
  const client = request.ip
  metrics.inFlight.inc()
  raw.once('close', () => {
    metrics.inFlight.dec()
    const durationMs = performance.now() - start
    const { method, apiKey, unavailable } = request
    const route = request.routeOptions.url
    // The client may have got none, for example because the body never arrived.
    const status = raw.headersSent ? raw.statusCode : undefined
    const labels = {
      http_route: route ?? '',
      http_request_method: NAMED_METHOD.test(method) ? method : '_OTHER',
      http_response_status_code: String(status ?? ''),
    }
    metrics.durations.observe(labels, durationMs / 1000)
    if (unavailable) metrics.unavailable.inc({ cause: unavailable.cause })
    request.log.info(
      {
        method,
        route: route ?? null,
        path: findPath(request.originalUrl).slice(0, MAX_LOGGED_PATH),
        status: status ?? null,
        durationMs: Math.round(durationMs * 100) / 100,
        key: apiKey?.name ?? null,
        keyId: apiKey?.id ?? null,
        client,
        ...unavailable,
        ...(raw.writableFinished ? {} : { aborted: true }),
      },
      'request',
    )
  })
}
