import type { Server } from 'node:http'
import type { FastifyHttpOptions } from 'fastify'

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
  /** For all connections to end once the port is closed: as long as an update may take that arrived before. */
  closeMs: 7000,
}

export type HttpTimeouts = typeof httpTimeouts

/**
 * How long a connection may be idle. It must exceed the idle timeout of clients and proxies: a request sent just as the service closes
 * the connection would be lost. Go, reqwest and Azure keep one for 90 seconds, OkHttp for 300, AWS load balancers for 60 and Google
 * Cloud's for 600.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 620_000

/** Returns the options of Fastify and Node for connections. */
export function serverOptions({ arrivalMs, stallMs }: HttpTimeouts) {
  return {
    requestTimeout: arrivalMs,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    connectionTimeout: stallMs,
    // While it closes, requests are answered with `Connection: close`, and what stays open is then closed.
    return503OnClosing: false,
    forceCloseConnections: true,
    // Fastify's would also end a stop, which has a time limit of its own.
    pluginTimeout: 0,
    http: {
      // Node compares the two when it creates the server, before it has Fastify's. If that for headers is longer, they change places.
      requestTimeout: arrivalMs,
      headersTimeout: arrivalMs,
      // Node's default could extend the request timeout by 30 seconds.
      connectionsCheckingInterval: 1000,
      // Node's own response to a request without a Host has no body.
      requireHostHeader: false,
      // Of several Host, Authorization or Content-Type headers, Node would use the first, and a proxy the last. Joined, none is valid.
      joinDuplicateHeaders: true,
    },
  } satisfies FastifyHttpOptions<Server>
}
