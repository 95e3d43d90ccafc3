import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError as ParserError } from 'fastify'
import { ApiError, serviceUnavailable } from '../../contract/errors.ts'
import { Admission } from './admission.ts'
import type { Connection, Refusal } from './connection.ts'
import { stopGracefully } from './graceful-stop.ts'
import { parserError } from './malformed-requests.ts'
import { OpenConnections } from './open-connections.ts'
import { MAX_HEADERS, messageError } from './protocol.ts'
import { type RefusalReport, refuse, sendRefusal } from './refusals.ts'
import { closeUnreadResponses } from './unread-responses.ts'

/**
 * How long a connection may be idle between requests. It must exceed the idle timeout of clients and proxies, so that they
 * close the connection: a request sent just as the service closes it would be lost. Go, reqwest and Azure keep an idle
 * connection for 90 seconds, OkHttp for 300, AWS load balancers for 60 and Google Cloud's for 600.
 */
const KEEP_ALIVE_TIMEOUT_MS = 620_000

/** A connection with more waiting requests is not read until all have started. */
const MAX_READ_AHEAD = 16

export interface HttpServerOptions extends RefusalReport {
  /** Whether a request takes precedence over other kinds, as health checks do. */
  readonly isUrgent: (request: IncomingMessage) => boolean
  /** How long a client may take to send a request, including its body. */
  readonly arrivalMs: number
  /** How long a client may read nothing of a response. */
  readonly stallMs: number
  readonly limits?: HttpLimits
}

export interface HttpLimits {
  /** Maximum open connections before a new one closes the connection that has been idle longest. */
  readonly maxOpen: number
  /** Maximum requests, of all connections, that wait behind another one of their connection. */
  readonly maxPipelined: number
  /** Maximum responses that stalled because their client reads nothing. */
  readonly maxStalled: number
}

export const httpLimits: HttpLimits = { maxOpen: 10_000, maxPipelined: 4000, maxStalled: 1000 }

/**
 * The HTTP server: its connections, and which of their requests is served when. Each connection has at most one request in
 * flight; further ones wait until its response is sent.
 */
export class HttpServer {
  readonly #options: HttpServerOptions
  readonly #limits: HttpLimits
  readonly #connections = new OpenConnections()
  readonly #admission: Admission
  #handler: RequestListener = () => {}
  #isStopping = false

  constructor(options: HttpServerOptions) {
    this.#options = options
    this.#limits = options.limits ?? httpLimits
    this.#admission = new Admission({
      start: (connection) => this.#start(connection),
      isUrgent: ({ waiting: [oldest] }) => oldest !== undefined && options.isUrgent(oldest.req),
    })
  }

  /** Creates Node's server, which serves requests with the handler. Call it once. */
  create(handler: RequestListener): Server {
    this.#handler = handler
    const { arrivalMs } = this.#options
    const server = createServer({
      requestTimeout: arrivalMs,
      headersTimeout: arrivalMs,
      // Node's default of 30 seconds could extend the request timeout from 10 to 40 seconds.
      connectionsCheckingInterval: 1000,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      requireHostHeader: false,
    })
    // Serves clients that half-close the connection after a request. Node's types lack this option.
    Object.assign(server, { httpAllowHalfOpen: true })
    // Node silently drops the headers beyond this number, so it must exceed the maximum.
    server.maxHeadersCount = MAX_HEADERS + 1
    server.on('connection', (socket: Socket) => this.#accept(socket))
    // Without a listener for `upgrade`, Node ignores the Upgrade header and serves the request (RFC 9110, section 7.8).
    for (const event of ['request', 'checkContinue', 'checkExpectation']) {
      server.on(event, (_request, response: ServerResponse) => this.#add(response))
    }
    // The type says Duplex, but the sockets of this server are net.Sockets.
    server.on('connect', (_request, socket: Socket) => this.#refuseConnect(socket))
    closeUnreadResponses(server, this.#connections, this.#options.stallMs, this.#limits.maxStalled)
    return server
  }

  /** Whether the server is stopping. */
  get isStopping(): boolean {
    return this.#isStopping
  }

  /** Stops the server as `stopGracefully` does. */
  async stop(server: Server): Promise<void> {
    this.#isStopping = true
    await stopGracefully(server, this.#connections, this.#admission)
  }

  /** The connection of a request; undefined for a request that is injected. */
  connectionOf({ req }: ServerResponse): Connection | undefined {
    return this.#connections.of(req.socket)
  }

  /**
   * Returns the headers that say whether the connection stays open after a response, whose headers are about to be sent;
   * undefined for a request that is injected.
   */
  connectionHeaders(response: ServerResponse): Record<string, string> | undefined {
    const connection = this.connectionOf(response)
    if (connection === undefined) return undefined
    return connection.closesAfter(response, this.#isStopping)
      ? { connection: 'close' }
      : { connection: 'keep-alive', 'keep-alive': `timeout=${KEEP_ALIVE_TIMEOUT_MS / 1000}` }
  }

  /** Answers data that Node's HTTP parser rejects, or a request that is not complete in time (event `clientError`). */
  refuseMalformed(error: ParserError, socket: Socket): void {
    // Data after a request with `Connection: close`. Node closes the connection after the response to that request
    // (RFC 9112, section 9.6).
    if (error.code === 'HPE_CLOSED_CONNECTION') return
    const connection = this.#connections.of(socket)
    // A connection without any data gets no response.
    const isAnswered = error.code !== 'ECONNRESET' && socket.writable && socket.bytesRead > 0
    if (connection === undefined || !isAnswered) socket.destroy()
    else refuse(connection, { error: parserError(error.code), reason: error.code }, this.#options)
  }

  #accept(socket: Socket): void {
    this.#admission.connectionAccepted()
    if (this.#connections.size >= this.#limits.maxOpen) this.#connections.closeLongestIdle()
    const connection = this.#connections.add(socket)
    socket.once('close', () => {
      this.#admission.delete(connection)
      this.#discardWaiting(connection)
    })
  }

  #add(response: ServerResponse): void {
    const connection = this.connectionOf(response)
    if (connection === undefined) return
    const refusal = connection.refusal ?? messageError(response.req) ?? this.#limitRefusal(connection)
    if (refusal !== undefined) {
      // Anything behind it could be a smuggled request.
      connection.stopReading()
      refuse(connection, refusal, this.#options)
      return
    }
    const { isBusy } = connection
    connection.newestRequest = response.req
    connection.waiting.push(response)
    this.#options.statistics.queued++
    if (connection.waiting.length > MAX_READ_AHEAD) connection.pauseReading()
    if (isBusy) return
    this.#admission.add(connection)
  }

  #limitRefusal({ isBusy }: Connection): Refusal | undefined {
    // Each connection in the queue has one that waits for other connections.
    const pipelined = this.#options.statistics.queued - this.#admission.size
    return isBusy && pipelined >= this.#limits.maxPipelined ? tooManyPipelined : undefined
  }

  #start(connection: Connection): void {
    const response = connection.waiting.shift()
    if (response === undefined) return
    const { statistics } = this.#options
    statistics.queued--
    if (connection.waiting.length === 0) connection.resumeReading()
    if (connection.refusal?.request === response.req) {
      if (!response.req.complete) {
        sendRefusal(connection, this.#options)
        return
      }
      response.shouldKeepAlive = false
    }
    connection.current = response
    statistics.inFlight++
    response.once('close', () => {
      statistics.inFlight--
      connection.current = undefined
      this.#continue(connection, response)
    })
    this.#handler(response.req, response)
  }

  /** Continues with the next request after a response. */
  #continue(connection: Connection, { req }: ServerResponse): void {
    const { socket, refusal, waiting } = connection
    // Node sends nothing more on a connection that is being closed.
    if (!socket.writable) this.#discardWaiting(connection)
    if (socket.destroyed) return
    if (refusal?.request === req) connection.end()
    else if (waiting.length > 0) this.#admission.add(connection)
    else if (refusal !== undefined) sendRefusal(connection, this.#options)
    else this.#connections.setIdle(connection)
  }

  #discardWaiting({ waiting }: Connection): void {
    this.#options.statistics.queued -= waiting.length
    waiting.length = 0
  }

  /**
   * Refuses CONNECT after the requests before it are answered (RFC 9112, section 9.3.2). Node removes its listeners from the
   * socket: without one for `error`, a connection reset would crash the process; without one for `drain`, the current
   * response would never complete.
   */
  #refuseConnect(socket: Socket): void {
    const connection = this.#connections.of(socket)
    socket.on('error', () => socket.destroy())
    socket.on('drain', () => connection?.current?.emit('drain'))
    if (connection !== undefined) refuse(connection, connectUnsupported, this.#options)
  }
}

const connectUnsupported: Refusal = {
  error: new ApiError(405, 'CONNECT is not supported.', { allow: '' }),
  reason: 'CONNECT',
}

const tooManyPipelined: Refusal = {
  error: serviceUnavailable(
    'overloaded',
    'Too many requests are queued behind others of their connection. Wait for responses before sending more.',
  ),
  reason: 'TOO_MANY_PIPELINED',
}
