import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { serviceUnavailable } from '../contract/errors.ts'
import type { HttpServer } from './connections/http-server.ts'
import { headerError } from './connections/protocol.ts'
import type { RequestStatistics } from './connections/request-statistics.ts'
import { sendError } from './error-handler.ts'
import { logRequest } from './request-log.ts'

/** The beginning and the end of each request in the framework, also of those for which it runs no hooks. */
export class RequestLife {
  readonly #http: HttpServer
  readonly #statistics: RequestStatistics

  constructor(http: HttpServer, statistics: RequestStatistics) {
    this.#http = http
    this.#statistics = statistics
  }

  /** Adds the hooks that begin and end each request. They must run before all others but those that trace requests. */
  follow(app: FastifyInstance): void {
    app.addHook('onRequest', (request, reply, done) => {
      this.#begin(request, reply)
      const isLate = this.#http.connectionOf(reply.raw)?.isLate
      done(isLate ? tooBusy : headerError(request.raw))
    })
    app.addHook('onSend', (_request, reply, payload, done) => {
      this.#end(reply)
      done(null, payload)
    })
  }

  /** Answers a request whose path the framework rejects before it runs any hook. */
  answerFrameworkError(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
    this.#begin(request, reply)
    this.#end(reply)
    sendError(headerError(request.raw) ?? error, request, reply)
  }

  #begin(request: FastifyRequest, reply: FastifyReply): void {
    reply.header('x-request-id', request.id)
    logRequest(request, reply, this.#statistics, this.#http.connectionOf(reply.raw)?.readySince)
  }

  /**
   * Replaces what the framework says about the connection: `Connection: close` after an invalid body and while the server is
   * stopping, although the connection may stay open.
   */
  #end(reply: FastifyReply): void {
    const headers = this.#http.connectionHeaders(reply.raw)
    if (headers?.['connection'] === 'close' || reply.hasHeader('connection')) reply.headers(headers ?? {})
  }
}

const tooBusy = serviceUnavailable('overloaded', 'The service is too busy. Try again shortly.')
