import type { FastifyInstance } from 'fastify'
import type { HttpServer } from './connections/http-server.ts'
import { headerError } from './connections/protocol.ts'
import type { RequestStatistics } from './connections/request-statistics.ts'
import { logRequest } from './request-log.ts'

/** Adds the hooks that begin and end each request. They must run before all others but those that trace requests. */
export function followRequests(app: FastifyInstance, http: HttpServer, statistics: RequestStatistics): void {
  app.addHook('onRequest', (request, reply, done) => {
    const connection = http.connectionOf(reply.raw)
    reply.header('x-request-id', request.id)
    logRequest(request, reply, statistics, connection?.readySince)
    done(headerError(request.raw, request.originalUrl))
  })
  // Replaces what the framework says about the connection: `Connection: close` after an invalid body and while the server is
  // stopping, although the connection may stay open.
  app.addHook('onSend', (_request, reply, payload, done) => {
    const headers = http.connectionHeaders(reply.raw)
    if (headers?.['connection'] === 'close' || reply.hasHeader('connection')) reply.headers(headers ?? {})
    done(null, payload)
  })
}
