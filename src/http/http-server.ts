import { randomUUID } from 'node:crypto'
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { ConnectionError as ParserError } from 'fastify'
import { Connection } from './connection.ts'
import { errorMessage, isHttp, refusalOf } from './malformed-requests.ts'

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

/** Maximum open connections. Further ones are closed at once: each takes memory, and a file descriptor that the database may need. */
export const MAX_CONNECTIONS = 20_000

/** Grace period: how long the server waits for requests on open connections once the port is closed. */
const CLOSE_GRACE_MS = 500

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
  /** How long a client may read nothing of a response. */
  readonly stallMs: number
  /** Drain period: how long the server serves as before while its health check says that it stops. */
  readonly drainMs: number
}

/** Node's HTTP server with the limits of the service, errors in its format, and a graceful stop. */
export class HttpServer {
  readonly #options: HttpServerOptions
  readonly #connections = new Map<Socket, Connection>()
  #state: 'serving' | 'draining' | 'closing' = 'serving'

  constructor(options: HttpServerOptions) {
    this.#options = options
  }

  /** Creates Node's server, which serves requests with the handler. */
  create(handler: RequestListener): Server {
    const { arrivalMs, stallMs } = this.#options
    const server = createServer({
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
    server.maxConnections = MAX_CONNECTIONS
    server.timeout = stallMs
    server.on('connection', (socket: Socket) => {
      this.#connections.set(socket, new Connection(socket))
      socket.once('close', () => this.#connections.delete(socket))
    })
    // Any Expect header that Node does not know is ignored.
    for (const event of ['request', 'checkExpectation']) {
      server.on(event, (request, response) => {
        if (!isHttp(request)) this.refuseMalformed({ code: 'HPE_INVALID_METHOD' }, request.socket)
        else if (this.connectionOf(response)?.begin(response)) handler(request, response)
      })
    }
    return server
  }

  /** Whether the server is stopping. */
  get isStopping(): boolean {
    return this.#state !== 'serving'
  }

  /**
   * Stops the server without dropping a response. During the drain period it serves as before, so that load balancers learn of the
   * stop before their requests are refused. Then it closes the port, sends the pending responses with `Connection: close`, and closes
   * connections without a request. Resolves when all are closed.
   */
  async stop(server: Server): Promise<void> {
    this.#state = 'draining'
    if (!server.listening) return
    await setTimeout(this.#options.drainMs)
    // Not `close` of the HTTP server, which also closes idle connections on which a request may be arriving.
    NetServer.prototype.close.call(server)
    this.#state = 'closing'
    while (this.#connections.size > 0) {
      await setTimeout(CLOSE_GRACE_MS)
      // Node first reads what has arrived.
      await setImmediate()
      for (const [socket, connection] of this.#connections) if (connection.isIdle) socket.destroy()
      await setImmediate()
    }
  }

  /** The connection of a request; undefined for a request that is injected. */
  connectionOf({ req }: ServerResponse): Connection | undefined {
    return this.#connections.get(req.socket)
  }

  /** Whether the connection closes after a response, whose headers are about to be sent. */
  closesAfter(response: ServerResponse): boolean {
    return this.connectionOf(response)?.closesAfter(response, this.#state === 'closing') === true
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
}
