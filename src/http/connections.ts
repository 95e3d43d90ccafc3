import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, METHODS, type ServerResponse } from 'node:http'
import { Server, type Socket } from 'node:net'
import { setImmediate as nextIteration, setTimeout } from 'node:timers/promises'
import fp from 'fastify-plugin'
import type { RequestMetrics } from '../metrics/request-metrics.ts'
import { formatRefusal, MAX_HEADERS, toRefusal } from './malformed-requests.ts'
import type { HttpTimeouts } from './server-options.ts'

/** Maximum open connections, for the memory, and for the file descriptors of the database. Further ones are closed at once. */
export const MAX_CONNECTIONS = 20_000

/** Maximum requests of a connection that wait for their response. Node would read on, thousands at once. */
export const MAX_PIPELINED = 16

const methods = new Set(METHODS)

/** Whether a request has arrived whole, so that its client waits for the response. */
const isWhole = ({ req }: ServerResponse): boolean => req.complete

export interface ConnectionsOptions {
  readonly timeouts: HttpTimeouts
  readonly metrics: RequestMetrics
  /** Aborted when the stop begins. */
  readonly stopping: AbortController
}

/** The requests of one connection. */
interface Connection {
  /** Those whose response has not ended, oldest first. Only the first is served. */
  readonly pending: ServerResponse[]
  /** The newest request, and not its response, which would keep the list that it has sent in memory. */
  latest?: IncomingMessage
}

/**
 * Serves the requests of each connection one after the other: once a response ends the connection, nothing behind it is done. Ends a
 * connection whose data is no request, and, when the application closes, every connection.
 */
export const connections = fp<ConnectionsOptions>(
  async (app, { timeouts, metrics, stopping }) => {
    const { server, log } = app
    const connections = new Map<Socket, Connection>()

    /** Serves the oldest request of a connection, unless the response before it has ended the connection. */
    const serveNext = (connection: Connection): void => {
      const [response] = connection.pending
      if (response === undefined || !response.req.socket.writable) return
      response.once('close', () => {
        connection.pending.shift()
        serveNext(connection)
      })
      // Not at once: libuv polls on, and runs no timer, while more than 1,024 connections have requests whenever it looks.
      setImmediate(() => response.req.socket.writable && app.routing(response.req, response))
    }

    const add = (request: IncomingMessage, response: ServerResponse): void => {
      const { socket, method = '', httpVersionMajor } = request
      // Node's parser also accepts requests of RTSP and HTTP/2.0.
      if (!methods.has(method) || httpVersionMajor !== 1) return void refuse('HPE_INVALID_METHOD', socket)
      const connection = connections.get(socket)
      if (connection === undefined) return
      connection.latest = request
      const count = connection.pending.push(response)
      if (count === 1) serveNext(connection)
      if (count > MAX_PIPELINED) socket.destroy()
    }

    /**
     * Ends a connection with the error for data that Node's parser rejects, or for a request that is not complete in time, after the
     * requests before it are answered (RFC 9112, section 9.3.2).
     */
    const refuse = async (code: string, socket: Socket): Promise<void> => {
      // Read now: a socket that its client has closed has no address any more.
      const client = socket.remoteAddress
      const { pending, latest } = connections.get(socket) ?? { pending: [] }
      await Promise.allSettled(pending.filter(isWhole).map((response) => once(response, 'close')))
      // A request whose body has the error, but which was answered before, gets no second response.
      const isAnswered = latest?.complete === false && pending.every(({ headersSent }) => headersSent)
      // A connection without any data gets no response.
      if (!isAnswered && code !== 'ECONNRESET' && socket.writable && socket.bytesRead > 0) {
        const error = toRefusal(code)
        const requestId = randomUUID()
        metrics.malformed.inc({ http_response_status_code: String(error.status) })
        log.info({ requestId, status: error.status, reason: code, client }, 'malformed request refused')
        socket.write(formatRefusal(error, requestId))
      }
      socket.destroySoon()
    }

    // Fastify's own would start every request that Node has read, and end a connection before its requests are answered.
    server.removeAllListeners('request').on('request', add)
    server
      .removeAllListeners('clientError')
      .on('clientError', ({ code = '' }: NodeJS.ErrnoException, socket: Socket) => void refuse(code, socket))
    // Node would answer an Expect header that it does not know.
    server.on('checkExpectation', add)
    server.on('connection', (socket: Socket) => {
      connections.set(socket, { pending: [] })
      socket.once('close', () => connections.delete(socket))
    })
    // For clients that half-close the connection after a request. Node's types lack it.
    Object.assign(server, { httpAllowHalfOpen: true })
    // Node silently drops further ones; one more shows that there are too many.
    server.maxHeadersCount = MAX_HEADERS + 1
    server.maxConnections = MAX_CONNECTIONS

    app.addHook('onRequest', ({ headers }, { raw }, done) => {
      // Fastify says it from the beginning of a stop: a client that reconnects while the port closes could lose its request.
      if (stopping.signal.aborted && server.listening) raw.removeHeader('connection')
      // Node drops what it has read behind such a request, and would take what follows, such as the end of a body, for the next one.
      if (headers.upgrade !== undefined) raw.setHeader('connection', 'close')
      done()
    })

    /** Waits until all requests that have arrived are answered, and clients had time to send another one, or have left. */
    const waitForClients = async (): Promise<void> => {
      const closedAt = performance.now()
      let busyAt = closedAt
      for (let now = closedAt; connections.size > 0; now = performance.now()) {
        if (now - busyAt > timeouts.closeGraceMs || now - closedAt > timeouts.closeMs) return
        await setTimeout(50)
        // Node first reads what has arrived.
        await nextIteration()
        if ([...connections.values()].some(({ pending }) => pending.some(isWhole))) busyAt = performance.now()
      }
    }

    // First serves as before, so that load balancers learn of the stop from its health check, then closes the port, and only then says
    // `Connection: close`. What remains, such as a response that its client does not read, Fastify ends.
    app.addHook('preClose', async () => {
      if (!server.listening) return
      stopping.abort()
      await setTimeout(timeouts.drainMs)
      // Not `close` of the HTTP server, which also closes idle connections on which a request may be arriving.
      Server.prototype.close.call(server)
      await waitForClients()
    })
  },
  { name: 'connections' },
)
