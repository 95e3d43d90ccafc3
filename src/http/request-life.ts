import type { FastifyInstance } from 'fastify'
import { ambiguityOf } from './ambiguity.ts'
import type { HttpServer } from './connections/http-server.ts'
import { logRequest } from './request-log.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** Adds the hooks that begin and end each request. They must run before all others but those that trace requests. */
export function followRequests(app: FastifyInstance, http: HttpServer, statistics: RequestStatistics): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    const connection = http.connectionOf(reply.raw)
    logRequest(request, reply, statistics, connection?.since)
    const error = ambiguityOf(request.raw, request.originalUrl)
    if (error !== undefined) connection?.stopAfterCurrent()
    done(error)
  })
  // Replaces what the framework says about the connection: `Connection: close` after an invalid body and while the server is
  // stopping, although the connection may stay open.
  app.addHook('onSend', (_request, reply, payload, done) => {
    const headers = http.connectionHeaders(reply.raw)
    if (headers?.['connection'] === 'close' || reply.hasHeader('connection')) reply.headers(headers ?? {})
    done(null, payload)
  })
}
