import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { errorMessage, isHttp, refusalOf } from './malformed-requests.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** How long the server waits for clients and load balancers. */
export const httpTimeouts = {
  /** For a client to send a request, including its body. */
  arrivalMs: 10_000,
  /** For a client that reads nothing of a response. */
  stallMs: 30_000,
  /** For load balancers to notice that the service stops. */
  drainMs: 1000,
}

/**
 * How long a connection may be idle between requests. It must exceed the idle timeout of clients and proxies, so that they
 * close the connection: a request sent just as the service closes it would be lost. Go, reqwest and Azure keep an idle
 * connection for 90 seconds, OkHttp for 300, AWS load balancers for 60 and Google Cloud's for 600.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 620_000

/**
 * Maximum headers of a request. In memory, a header of a few bytes takes about a hundred, so the limit on the size of all
 * headers does not bound the memory of a request.
 */
export const MAX_HEADERS = 256

/** Maximum open connections. Further ones are closed at once, for the memory, and for the file descriptors of the database. */
export const MAX_CONNECTIONS = 20_000

/** Maximum open requests of a connection. Node starts all that it has parsed, thousands at once, and keeps them in memory. */
export const MAX_PIPELINED = 16

/** How long clients may take to send a request on an open connection once the port is closed. */
const CLOSE_GRACE_MS = 500

export type HttpServer = ReturnType<typeof httpServer>

/** Returns what makes and stops Node's HTTP server, with the limits and the errors of the service. */
export function httpServer(
  timeouts: typeof httpTimeouts,
  statistics: RequestStatistics,
  log: FastifyBaseLogger,
) {
  /** The responses of each connection that have not ended, or whose request has not, oldest first. */
  const connections = new Map<Socket, Set<ServerResponse>>()
  let state: 'serving' | 'draining' | 'closing' = 'serving'

  const accept = (socket: Socket): void => {
    const responses = new Set<ServerResponse>()
    connections.set(socket, responses)
    socket.once('close', () => {
      connections.delete(socket)
      // Node before 24 leaves responses open that wait behind another one when their connection is lost.
      for (const response of responses) if (response.socket === null) response.destroy().emit('close')
    })
  }

  /** Records a request. Returns whether to serve it: nothing is served behind a response that is the last of its connection. */
  const begin = (response: ServerResponse): boolean => {
    const { req } = response
    // Node goes on with what it has read.
    if (!req.socket.writable) return false
    const responses = connections.get(req.socket) ?? new Set()
    const isBehindLast = [...responses].some((other) => other.hasHeader('connection'))
    for (const other of responses) if (other.closed) responses.delete(other)
    if (responses.add(response).size > MAX_PIPELINED) req.socket.destroy()
    response.once('close', () => req.complete && responses.delete(response))
    return !isBehindLast && !req.socket.destroyed
  }

  /**
   * Ends a connection with the error for data that Node's HTTP parser rejects, or for a request that is not complete in time (event
   * `clientError`), after the requests before it are answered (RFC 9112, section 9.3.2).
   */
  const refuse = async (code: string, socket: Socket): Promise<void> => {
    // The address is read now: a socket that its client has closed has none any more.
    const client = socket.remoteAddress
    const responses = [...(connections.get(socket) ?? [])]
    const last = responses.at(-1)
    // A request whose body has the error, but which was answered before, gets no second response.
    const isAnswered = last?.req.complete === false && last.headersSent
    await Promise.allSettled(dueOf(responses).map((response) => once(response, 'close')))
    // A connection without any data gets no response.
    if (!isAnswered && code !== 'ECONNRESET' && socket.writable && socket.bytesRead > 0) {
      const error = refusalOf(code)
      const requestId = randomUUID()
      statistics.malformed.inc({ http_response_status_code: String(error.status) })
      log.info({ requestId, status: error.status, reason: code, client }, 'malformed request refused')
      socket.write(errorMessage(error, requestId))
    }
    socket.destroySoon()
  }

  return {
    refuse,

    /** Creates Node's server, which serves requests with the handler. */
    create(handler: RequestListener): Server {
      const server = createServer({
        requestTimeout: timeouts.arrivalMs,
        headersTimeout: timeouts.arrivalMs,
        // Node's default of 30 seconds could extend the request timeout from 10 to 40 seconds.
        connectionsCheckingInterval: 1000,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        requireHostHeader: false,
        // Node would use the first of several Host, Authorization or Content-Type headers, and a proxy may have used the last. Joined,
        // none of them is valid.
        joinDuplicateHeaders: true,
      })
      // Serves clients that half-close the connection after a request. Node's types lack this option.
      Object.assign(server, { httpAllowHalfOpen: true })
      // Node silently drops the headers beyond this number, so it must exceed the maximum.
      server.maxHeadersCount = MAX_HEADERS + 1
      server.maxConnections = MAX_CONNECTIONS
      server.timeout = timeouts.stallMs
      server.on('connection', accept)
      // The second is for an Expect header that Node does not know, and would answer.
      for (const event of ['request', 'checkExpectation']) {
        server.on(event, (request, response) => {
          if (!isHttp(request)) void refuse('HPE_INVALID_METHOD', request.socket)
          else if (begin(response)) handler(request, response)
        })
      }
      return server
    },

    /** Whether the server is stopping. */
    isStopping: (): boolean => state !== 'serving',

    /** Whether the connection closes after a response, whose headers are about to be sent. */
    closesAfter: (response: ServerResponse): boolean =>
      state === 'closing' && [...(connections.get(response.req.socket) ?? [])].at(-1) === response,

    /**
     * Stops the server without dropping the response to a request that it has read. It first serves as before, so that load balancers
     * learn of the stop from its health check, then closes the port, and only then says `Connection: close`: a client that it tells to
     * reconnect while the port closes could lose its request. Resolves when all connections are closed.
     */
    async stop(server: Server): Promise<void> {
      state = 'draining'
      if (!server.listening) return
      await setTimeout(timeouts.drainMs)
      // Not `close` of the HTTP server, which also closes idle connections on which a request may be arriving.
      NetServer.prototype.close.call(server)
      state = 'closing'
      while (connections.size > 0) {
        await setTimeout(CLOSE_GRACE_MS)
        // Node first reads what has arrived.
        await setImmediate()
        for (const [socket, responses] of connections) if (dueOf(responses).length === 0) socket.destroy()
        await setImmediate()
      }
    },
  }
}

/** The responses that a client waits for: those to requests that have arrived whole. */
function dueOf(responses: Iterable<ServerResponse>): ServerResponse[] {
  return [...responses].filter(({ req, closed }) => req.complete && !closed)
}
