import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { ConnectionError, FastifyBaseLogger, FastifyServerOptions } from 'fastify'
import { ApiError } from '../../contract/errors.ts'
import type { Connections } from './connections.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** How long a refused client may go on reading its answer before the connection is cut, in milliseconds. */
const LINGER = 1000

/** Ends a connection with an error response, because what came on it is not a request that can be served. */
export interface ConnectionRefusals {
  /** Answers once the requests before it are answered, and closes. Later calls for the same connection do nothing. */
  refuse(socket: Socket, answer: ApiError, reason: string): void
  /** True once `refuse` was called: nothing more that comes on this connection may be served or answered. */
  isRefused(socket: Socket): boolean
}

export function connectionRefusals(
  connections: Connections,
  statistics: RequestStatistics,
  log: FastifyBaseLogger,
): ConnectionRefusals {
  const refused = new WeakSet<Socket>()
  return {
    refuse(socket, answer, reason) {
      if (refused.has(socket)) return
      refused.add(socket)
      const write = (): void => {
        const requestId = randomUUID()
        statistics.refused(answer.status)
        log.info({ requestId, status: answer.status, reason }, 'malformed request refused')
        writeError(socket, answer, requestId)
      }
      const newest = connections.newestOn(socket)
      // Garbage behind a whole request must not be taken for the answer to it: that one comes first.
      if (newest?.isOwed && newest.response.req.complete) newest.response.once('close', write)
      else write()
    },

    isRefused: (socket) => refused.has(socket),
  }
}

/**
 * Answers what Node's HTTP parser refuses, for which there is no request and no reply: the bytes go to the socket.
 * (`clientError` in the Node.js manual, class http.Server.)
 */
export function clientErrorHandler(
  connections: Connections,
  refusals: ConnectionRefusals,
): NonNullable<FastifyServerOptions['clientErrorHandler']> {
  return (error, socket) => {
    // What a refused client goes on sending raises further errors; it gets one answer.
    if (refusals.isRefused(socket)) return
    // Data behind a request that said `Connection: close`: the answer to that request is the last one, and Node closes
    // the connection after it (RFC 9112, section 9.6).
    if (error.code === 'HPE_CLOSED_CONNECTION') return
    const newest = connections.newestOn(socket)
    // A request whose answer has gone out already, although the rest of it never came, gets no second one; neither does
    // a connection on which nothing was asked.
    const isAnswered = newest?.response.headersSent === true && !newest.response.req.complete
    if (error.code === 'ECONNRESET' || !socket.writable || isAnswered || socket.bytesRead === 0) {
      socket.destroy()
      return
    }
    refusals.refuse(socket, answerTo(error), error.code)
  }
}

/** Writes an error response by hand and ends the connection. */
export function writeError(socket: Duplex, { status, headers, body }: ApiError, requestId: string): void {
  if (!socket.writable) return
  const json = JSON.stringify(body)
  const lines = Object.entries({
    ...headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(json)),
    'x-request-id': requestId,
    date: new Date().toUTCString(),
    connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${json}`)
  // Closing at once, with bytes of the client unread, would reset the connection under the answer.
  setTimeout(() => socket.destroy(), LINGER).unref()
}

function answerTo(error: ConnectionError): ApiError {
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(
        431,
        'The request line and headers are too large; at most 16384 bytes are accepted.',
      )
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new ApiError(413, 'The chunk extensions of the body are too large.')
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError(408, 'The request did not arrive in time.')
    default:
      return notHttp()
  }
}

/** 400 for what is no message of HTTP/1.1 or HTTP/1.0. */
export function notHttp(): ApiError {
  return new ApiError(400, 'The request is not valid HTTP.')
}
