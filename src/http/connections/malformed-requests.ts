import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { ConnectionError, FastifyBaseLogger, FastifyServerOptions } from 'fastify'
import { ApiError } from '../../contract/errors.ts'
import type { Connections } from './connections.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** How long a client may take to read the error response before the connection is destroyed. */
const CLOSE_TIMEOUT_MS = 1000

/** Closes connections with an error response after data that is not a valid request. */
export interface ConnectionRefusals {
  /**
   * Sends the error after the responses to earlier requests, and closes the connection. Later calls for the same connection
   * have no effect.
   */
  refuse(socket: Socket, error: ApiError, reason: string): void
  /** Whether `refuse` was called. Nothing else that arrives on the connection may be served. */
  isRefused(socket: Socket): boolean
}

/** Creates the refusals of a server, which are counted and logged. */
export function connectionRefusals(
  connections: Connections,
  statistics: RequestStatistics,
  log: FastifyBaseLogger,
): ConnectionRefusals {
  const refused = new WeakSet<Socket>()
  return {
    refuse(socket, error, reason) {
      if (refused.has(socket)) return
      refused.add(socket)
      // Read now: a socket that its client has closed has no address any more.
      const client = socket.remoteAddress
      const request = connections.newestRequestOn(socket)
      const isIncomplete = request?.complete === false
      const pending = connections.newestPendingOn(socket)
      if (isIncomplete && pending !== undefined) pending.shouldKeepAlive = false
      const answer = (): void => {
        // A request that was answered early, or has become complete, gets no second response.
        if (isIncomplete && (pending === undefined || pending.headersSent || request.complete)) {
          if (pending === undefined || pending.closed) close(socket)
          else pending.once('close', () => close(socket))
          return
        }
        const requestId = randomUUID()
        statistics.recordMalformed(error.status)
        log.info({ requestId, status: error.status, reason, client }, 'malformed request refused')
        writeError(socket, error, requestId)
      }
      // The error must not look like the response to a complete request before it, which is sent first.
      const preceding = connections.newestCompleteOn(socket)
      if (preceding) preceding.once('close', answer)
      else answer()
    },

    isRefused: (socket) => refused.has(socket),
  }
}

/**
 * Answers data that Node's HTTP parser rejects. There is no request and no reply, so it writes the response to the socket
 * (Node.js manual, class http.Server, event `clientError`).
 */
export function clientErrorHandler(
  refusals: ConnectionRefusals,
): NonNullable<FastifyServerOptions['clientErrorHandler']> {
  return (error, socket) => {
    // More data from a refused client causes more errors; it gets one response.
    if (refusals.isRefused(socket)) return
    // Data after a request with `Connection: close`. Node closes the connection after the response to that request
    // (RFC 9112, section 9.6).
    if (error.code === 'HPE_CLOSED_CONNECTION') return
    // A connection without any data gets no response.
    if (error.code === 'ECONNRESET' || !socket.writable || socket.bytesRead === 0) {
      socket.destroy()
      return
    }
    refusals.refuse(socket, responseTo(error), error.code)
  }
}

/** Writes an error response to the socket and closes the connection. */
function writeError(socket: Duplex, { status, headers, body }: ApiError, requestId: string): void {
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
  close(socket, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${json}`)
}

/** Closes the connection after everything that was written to the socket, and after `last`. */
function close(socket: Duplex, last = ''): void {
  socket.end(last)
  // Destroying the socket with unread data would reset the connection before the client has read the response.
  setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS).unref()
}

function responseTo(error: ConnectionError): ApiError {
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      return headersTooLarge()
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new ApiError(413, 'The chunk extensions of the body are too large.')
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return requestTimeout()
    default:
      return malformed(error.code)
  }
}

const MALFORMED_URL =
  'The request line is malformed. Its path must begin with /, with spaces and characters other than ASCII percent-encoded.'
const UNCERTAIN_LENGTH =
  'The request must have one valid Content-Length or the header Transfer-Encoding: chunked, and not both.'

/** What is malformed, by the error codes of Node's parser; see `notHttp` for the others. */
const malformedParts: Readonly<Record<string, string>> = {
  HPE_INVALID_URL: MALFORMED_URL,
  // An unencoded space ends the URL, so the rest of it is not a version.
  HPE_INVALID_CONSTANT: MALFORMED_URL,
  HPE_INVALID_HEADER_TOKEN: 'A header is malformed: its name or its value has an invalid character.',
  HPE_INVALID_CONTENT_LENGTH: UNCERTAIN_LENGTH,
  HPE_UNEXPECTED_CONTENT_LENGTH: UNCERTAIN_LENGTH,
  HPE_INVALID_TRANSFER_ENCODING: UNCERTAIN_LENGTH,
  HPE_INVALID_CHUNK_SIZE: 'The chunks of the body are malformed.',
  HPE_INVALID_EOF_STATE: 'The request ended before it was complete.',
}

function malformed(code: string): ApiError {
  const message = malformedParts[code]
  return message === undefined ? notHttp() : new ApiError(400, message)
}

/** Creates the 408 for a request that is incomplete when the request timeout expires. */
export function requestTimeout(): ApiError {
  return new ApiError(408, 'The request did not arrive in time.')
}

/** Creates the 431 for a request line and headers that are larger than Node's limit. */
export function headersTooLarge(): ApiError {
  return new ApiError(431, 'The request line and headers are too large. The maximum is 16384 bytes.')
}

/** Creates the 400 for data that is not an HTTP/1.1 or HTTP/1.0 message. */
export function notHttp(): ApiError {
  return new ApiError(400, 'The request is not valid HTTP.')
}
