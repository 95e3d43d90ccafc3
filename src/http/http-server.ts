import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextIteration, setTimeout } from 'node:timers/promises'
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
  /** For a client to send a request on an open connection once the port is closed. */
  closeGraceMs: 500,
}

/**
 * How long a connection may be idle. It must exceed the idle timeout of clients and proxies: a request sent just as the service closes
 * the connection would be lost. Go, reqwest and Azure keep one for 90 seconds, OkHttp for 300, AWS load balancers for 60 and Google
 * Cloud's for 600.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 620_000

/** Maximum headers of a request. The limit on their size does not bound their memory, about a hundred bytes for each. */
export const MAX_HEADERS = 256

/** Maximum open connections, for the memory, and for the file descriptors of the database. Further ones are closed at once. */
export const MAX_CONNECTIONS = 20_000

/** Maximum open requests of a connection. Node would start all that it has parsed, thousands at once. */
export const MAX_PIPELINED = 16

/** Returns what makes Node's HTTP server, with the limits and errors of the service, and what waits for its end. */
export function httpServer(
  timeouts: typeof httpTimeouts,
  statistics: RequestStatistics,
  log: FastifyBaseLogger,
) {
  /** The responses of each connection that have not ended, or whose request has not, oldest first. */
  const connections = new Map<Socket, Set<ServerResponse>>()

  const accept = (socket: Socket): void => {
    const responses = new Set<ServerResponse>()
    connections.set(socket, responses)
    socket.once('close', () => {
      connections.delete(socket)
      // Node before 24 leaves responses open that wait behind another one when their connection is lost.
      for (const response of responses) if (response.socket === null) response.destroy().emit('close')
    })
  }

  /** Records a request. Returns false if its connection has too many, of which Node then still starts those that it has read. */
  const begin = (response: ServerResponse): boolean => {
    const { req } = response
    const responses = connections.get(req.socket)
    if (responses === undefined || req.socket.destroyed) return false
    for (const other of responses) if (other.closed) responses.delete(other)
    response.once('close', () => req.complete && responses.delete(response))
    if (responses.add(response).size > MAX_PIPELINED) req.socket.destroy()
    return !req.socket.destroyed
  }

  /** Returns whether to serve a request: Node also starts what it has read behind the last of a connection. */
  const isExpected = ({ req }: ServerResponse): boolean => {
    const responses = [...(connections.get(req.socket) ?? [])]
    return req.socket.writable && !responses.some((response) => response.hasHeader('connection'))
  }

  /**
   * Ends a connection with the error for data that Node's parser rejects, or for a request that is not complete in time (event
   * `clientError`), after the requests before it are answered (RFC 9112, section 9.3.2).
   */
  const refuse = async (code: string, socket: Socket): Promise<void> => {
    // Read now: a socket that its client has closed has no address any more.
    const client = socket.remoteAddress
    const responses = [...(connections.get(socket) ?? [])]
    const last = responses.at(-1)
    // A request whose body has the error, but which was answered before, gets no second response.
    const isAnswered = last?.req.complete === false && last.headersSent
    await Promise.allSettled(responses.filter(isDue).map((response) => once(response, 'close')))
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

    create(handler: RequestListener): Server {
      const server = createServer({
        requestTimeout: timeouts.arrivalMs,
        headersTimeout: timeouts.arrivalMs,
        // Node's default could extend the request timeout by 30 seconds.
        connectionsCheckingInterval: 1000,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        requireHostHeader: false,
        // Of several Host, Authorization or Content-Type headers, Node would use the first, and a proxy the last. Joined, none is valid.
        joinDuplicateHeaders: true,
      })
      // For clients that half-close the connection after a request. Node's types lack it.
      Object.assign(server, { httpAllowHalfOpen: true })
      // Node silently drops further ones; one more shows that there are too many.
      server.maxHeadersCount = MAX_HEADERS + 1
      server.maxConnections = MAX_CONNECTIONS
      server.timeout = timeouts.stallMs
      server.on('connection', accept)
      // The second is for an Expect header that Node does not know, and would answer.
      for (const event of ['request', 'checkExpectation']) {
        server.on(event, (request, response) => {
          if (!isHttp(request)) return void refuse('HPE_INVALID_METHOD', request.socket)
          if (!begin(response)) return
          // Not at once: libuv polls on, and runs no timer, while more than 1,024 connections have requests whenever it looks.
          setImmediate(() => isExpected(response) && handler(request, response))
        })
      }
      return server
    },

    /** Waits until all requests that have arrived are answered, and clients had time to send another one, or have left. */
    async idle(): Promise<void> {
      let busyAt = performance.now()
      while (connections.size > 0 && performance.now() - busyAt < timeouts.closeGraceMs) {
        await setTimeout(50)
        // Node first reads what has arrived.
        await nextIteration()
        if ([...connections.values()].some((responses) => [...responses].some(isDue)))
          busyAt = performance.now()
      }
    },
  }
}

/** Whether a client waits for a response: its request has arrived whole. */
function isDue({ req, closed }: ServerResponse): boolean {
  return req.complete && !closed
}
