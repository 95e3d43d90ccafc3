import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { type FastifyInstance, type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import { pathOf } from '../contract/request-target.ts'
import { ambiguityOf } from './ambiguity.ts'
import { methodLabel, type RequestStatistics } from './request-statistics.ts'

/** Maximum characters of a path in the log. Clients can send 16 kB. */
const MAX_LOGGED_PATH = 256

/** Disables Fastify's own two lines for each request: `recordEnd` writes one. */
export const requestLog = new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' })

/** Returns the id of a request: its `X-Request-Id`, unless that could forge log lines in other programs, or a new one. */
export function requestId({ headers }: IncomingMessage): string {
  const given = headers['x-request-id']
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID()
}

/** Adds the hooks that begin and end each request, before all others but those that trace requests. */
export function addRequestHooks(app: FastifyInstance, statistics: RequestStatistics): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    recordEnd(request, reply, statistics)
    const error = ambiguityOf(request.raw, request.originalUrl)
    // What follows could be a smuggled request.
    if (error !== undefined) reply.raw.setHeader('connection', 'close')
    done(error)
  })
}

/** Writes one line and counts the request when it has ended, with or without a response. The path is logged without the query. */
function recordEnd(request: FastifyRequest, reply: FastifyReply, statistics: RequestStatistics): void {
  const { raw } = reply
  const start = performance.now()
  // Read now: a socket that its client has closed has no address any more.
  const client = request.ip
  statistics.inFlight++
  raw.once('close', () => {
    statistics.inFlight--
    const durationMs = performance.now() - start
    const { method, apiKey, unavailable } = request
    const route = request.routeOptions.url
    // The client may have got none, for example because the body never arrived.
    const status = raw.headersSent ? raw.statusCode : undefined
    const labels = {
      http_route: route ?? '',
      http_request_method: methodLabel(method),
      http_response_status_code: String(status ?? ''),
    }
    statistics.durations.observe(labels, durationMs / 1000)
    if (unavailable) statistics.unavailable.inc({ cause: unavailable.cause })
    request.log.info(
      {
        method,
        route: route ?? null,
        path: pathOf(request.originalUrl).slice(0, MAX_LOGGED_PATH),
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
