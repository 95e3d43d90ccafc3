import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer,
  IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import type { ConnectionError as ParserError } from 'fastify'
import { closePort } from './close-port.ts'
import { Connection } from './connection.ts'
import { type ConnectionLimits, guardConnections } from './guard.ts'
import { errorMessage, isHttp, refusalOf } from './malformed-requests.ts'
import { StartQueue } from './start-queue.ts'

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

/** Grace period: how long a connection must have waited for a request, or the rest of one, to be closed once the port is closed. */
const IDLE_GRACE_MS = 500

/** A malformed request that was answered without a handler. */
export interface RefusedRequest {
  readonly requestId: string
  readonly status: number
  readonly reason: string
  readonly client: string | undefined
}

export interface HttpServerOptions {
  readonly onRefused: (refused: RefusedRequest) => void
  /** How long a client may take to send a request, including its body. */
  readonly arrivalMs: number
  /** Drain period: how long the server keeps listening after it has begun to send `Connection: close`. */
  readonly drainMs: number
  readonly limits: ConnectionLimits
}

/**
 * The HTTP server: Node's own, with one request in flight for each connection, and limits on what clients can make it keep.
 * At its limit of connections, it accepts further ones, so that no client is cut off before it could send its request.
 */
export class HttpServer {
  readonly #options: HttpServerOptions
  readonly #connections = new Map<Socket, Connection>()
  readonly #queue: StartQueue
  #limits: ConnectionLimits
  #handler: RequestListener = () => {}
  #isStopping = false

  constructor(options: HttpServerOptions) {
    this.#options = options
    this.#limits = options.limits
    this.#queue = new StartQueue((response) => this.#handler(response.req, response))
  }

  /** Creates Node's server, which serves requests with the handler. Call it once. */
  create(handler: RequestListener): Server {
    this.#handler = handler
    const { arrivalMs } = this.#options
    const server = createServer({
      IncomingMessage: requestClass((socket) => this.#connections.get(socket)),
      requestTimeout: arrivalMs,
      headersTimeout: arrivalMs,
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
    server.on('connection', (socket: Socket) => this.#accept(socket))
    for (const event of ['request', 'checkExpectation']) {
      server.on(event, (_request, response: ServerResponse) => this.#receive(response))
    }
    // The second, if the first request that is not served is a CONNECT.
    for (const event of ['upgrade', 'connect']) server.on(event, ({ socket }) => this.#takeOver(socket))
    const endChecks = guardConnections(this.#connections, () => this.#limits)
    server.once('close', endChecks)
    return server
  }

  /** Whether the server is stopping. */
  get isStopping(): boolean {
    return this.#isStopping
  }

  /**
   * Stops the server without dropping a response or losing a request. During the drain period it keeps listening, and
   * `Connection: close` tells clients to reconnect elsewhere. Then it closes the port, sends the pending responses, and closes
   * connections that stay idle. Resolves when all connections are closed.
   */
  async stop(server: Server): Promise<void> {
    this.#isStopping = true
    if (!server.listening) return
    this.#limits = { ...this.#limits, maxOpen: 0, minIdleMs: Number.POSITIVE_INFINITY }
    // Also without connections: a load balancer may open one for each of its health checks.
    await setTimeout(this.#options.drainMs)
    const closed = once(server, 'close')
    await closePort(server, this.#queue)
    this.#limits = { ...this.#limits, minIdleMs: IDLE_GRACE_MS }
    await closed
  }

  /** The connection of a request; undefined for a request that is injected. */
  connectionOf({ req }: ServerResponse): Connection | undefined {
    return this.#connections.get(req.socket)
  }

  /** Whether the connection closes after a response, whose headers are about to be sent. */
  closesAfter(response: ServerResponse): boolean {
    const isLeaving = this.#connections.size > this.#limits.maxOpen
    return this.connectionOf(response)?.closesAfter(response, isLeaving) === true
  }

  /**
   * Answers data that Node's HTTP parser rejects, or a request that is not complete in time (event `clientError`), after the
   * requests before it are answered (RFC 9112, section 9.3.2).
   */
  refuseMalformed({ code }: Pick<ParserError, 'code'>, socket: Socket): void {
    // A connection without any data gets no response.
    if (code === 'ECONNRESET' || !socket.writable || socket.bytesRead === 0) {
      socket.destroy()
      return
    }
    const error = refusalOf(code)
    // The address is read now: a socket that its client has closed has none any more.
    const client = socket.remoteAddress
    this.#connections.get(socket)?.refuse(() => {
      const requestId = randomUUID()
      this.#options.onRefused({ requestId, status: error.status, reason: code, client })
      return errorMessage(error, requestId)
    })
  }

  #receive(response: ServerResponse): void {
    if (isHttp(response.req)) this.connectionOf(response)?.receive(response)
    else this.refuseMalformed({ code: 'HPE_INVALID_METHOD' }, response.req.socket)
  }

  #accept(socket: Socket): void {
    this.#queue.connectionAccepted()
    this.#connections.set(socket, new Connection(socket, (response) => this.#queue.add(response)))
    socket.once('close', () => this.#connections.delete(socket))
  }

  /**
   * Keeps a connection that Node has left, for the responses to the requests before. Node removes its listeners: without one for
   * `error`, a connection reset would crash the process; without one for `drain`, a response would never complete.
   */
  #takeOver(socket: Socket): void {
    const connection = this.#connections.get(socket)
    connection?.leave()
    socket.on('error', () => socket.destroy())
    socket.on('drain', () => connection?.current?.emit('drain'))
  }
}

/**
 * Returns a class of requests with which Node leaves a connection at the first request that is not served. It would otherwise parse
 * whatever it has read of pipelined requests, up to 64 KB at once. Node ignores any Upgrade header, and serves the request
 * (RFC 9110, section 7.8), also CONNECT, which then gets an error.
 */
function requestClass(connectionOf: (socket: Socket) => Connection | undefined): typeof IncomingMessage {
  return class extends IncomingMessage {
    /** Read when the headers of the request are parsed; if true, Node leaves the connection. */
    get upgrade(): boolean {
      return connectionOf(this.socket)?.isStopped === true
    }

    /** Node sets it if the request has an Upgrade header or is a CONNECT. */
    set upgrade(_isUpgrade: boolean | null) {}
  }
}
