import { type IncomingMessage, METHODS, type Server, type ServerResponse } from 'node:http'
import { isIPv6, type Socket } from 'node:net'
import { setImmediate } from 'node:timers'
import type { FastifyInstance } from 'fastify'
import { ApiError, bearerChallenge } from '../../contract/errors.ts'
import { authorityOf } from '../../contract/request-target.ts'
import type { Connections } from './connections.ts'
import { type ConnectionRefusals, notHttp } from './malformed-requests.ts'

/**
 * Rejects what Node would answer without an error body, or accept: a missing, repeated or malformed Host, repeated header
 * fields that must be single, a fragment in the request target, an unknown expectation, and CONNECT. The server must be
 * created with `requireHostHeader: false`.
 */
export function enforceProtocol(
  app: FastifyInstance,
  connections: Connections,
  refusals: ConnectionRefusals,
): void {
  app.addHook('onRequest', (request, _reply, done) => {
    done(headerError(request.raw))
  })
  // After authentication: a 401 takes precedence.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const expected = expectation(request.raw)
    if (expected === undefined || expected === CONTINUE) done()
    else done(unsupportedExpectation())
  })
  const server: Server = app.server
  // Node silently drops the headers beyond this number, so it must exceed the maximum.
  server.maxHeadersCount = MAX_HEADERS + 1
  server.on('checkContinue', (request, response) => server.emit('request', request, response))
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
  // The type says Duplex, but the sockets of this server are net.Sockets. Without a listener for `upgrade`, Node ignores the
  // Upgrade header and serves the request (RFC 9110, section 7.8).
  server.on('connect', (_request, socket: Socket) => refuseConnect(socket, connections, refusals))
}

/**
 * Refuses CONNECT after the requests before it are answered (RFC 9112, section 9.3.2). Node removes its listeners from the
 * socket: without one for `error`, a connection reset would crash the process; without those for `timeout` and `drain`, the
 * pending responses would never complete.
 */
function refuseConnect(socket: Socket, connections: Connections, refusals: ConnectionRefusals): void {
  socket.on('error', () => socket.destroy())
  socket.on('timeout', () => socket.destroy())
  socket.on('drain', () => connections.currentOn(socket)?.emit('drain'))
  refusals.refuse(socket, new ApiError(405, 'CONNECT is not supported.', { allow: '' }), 'CONNECT')
}

/**
 * Calls `send`, which sends the response to a request. If the request has an Upgrade header and has not arrived completely, the
 * response closes the connection: Node's parser stops at the end of such a request and discards what it has read beyond it,
 * which could be the next request of the client.
 */
export function afterUpgrade(request: IncomingMessage, response: ServerResponse, send: () => void): void {
  if (request.headers.upgrade === undefined || request.complete) {
    send()
    return
  }
  // A short body, or the end of a request without one, has usually been read together with the headers.
  setImmediate(() => {
    if (!request.complete) response.shouldKeepAlive = false
    send()
  })
}

/**
 * Maximum headers of a request. In memory, a header of a few bytes takes about a hundred, so the limit on the size of all
 * headers does not bound the memory of a request.
 */
const MAX_HEADERS = 256

/**
 * Refuses messages that Node's parser accepts but whose protocol or end is uncertain, and those with too many headers, and
 * closes the connection: anything after such a message could be a smuggled request. No listener of `request` sees them. Call
 * it after those listeners are added.
 */
export function refuseUnframedMessages(server: Server, refusals: ConnectionRefusals): void {
  const listeners = server.rawListeners('request')
  server.removeAllListeners('request')
  server.on('request', (request: IncomingMessage, response: unknown) => {
    const { socket } = request
    if (refusals.isRefused(socket)) return
    const [error, reason] = headerCountError(request) ?? framingError(request) ?? []
    if (error === undefined || reason === undefined) {
      for (const listener of listeners) Reflect.apply(listener, server, [request, response])
      return
    }
    refusals.refuse(socket, error, reason)
    // Stops reading. Data that was already read may contain further requests, which `isRefused` ignores.
    socket.pause()
  })
}

/** Checks the number of headers. Before the others, which read `headers`: an object that Node makes of all of them. */
function headerCountError({ rawHeaders }: IncomingMessage): [error: ApiError, reason: string] | undefined {
  return rawHeaders.length / 2 > MAX_HEADERS ? [tooManyHeaders(), 'TOO_MANY_HEADERS'] : undefined
}

/** Creates the 431 for a request with more than `MAX_HEADERS` headers. */
function tooManyHeaders(): ApiError {
  return new ApiError(431, `The request has too many headers. The maximum is ${MAX_HEADERS}.`)
}

/** Any other method or version belongs to another protocol, such as RTSP or HTTP/2. CONNECT has an event of its own. */
const methods = new Set(METHODS)
const versions = ['1.1', '1.0']

const CHUNKED = 'chunked'
const CODING_NAME = /^[\w!#$%&'*+.^`|~-]+(?:[ \t]*;.*)?$/

/** Checks that a message is HTTP and that its end is certain (message framing; RFC 9112, section 6). */
function framingError({
  method = '',
  headers,
  httpVersion,
}: IncomingMessage): [error: ApiError, reason: string] | undefined {
  if (!methods.has(method) || !versions.includes(httpVersion)) return [notHttp(), 'UNKNOWN_PROTOCOL']
  const transfer = headers['transfer-encoding']
  if (transfer === undefined) return undefined
  const codings = transfer
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
  if (codings.length === 1 && codings[0] === CHUNKED && httpVersion !== '1.0') return undefined
  // RFC 9112, section 6.1. Node's parser ensures that `chunked`, if present, is the last coding.
  const isUnknown =
    httpVersion !== '1.0' &&
    codings.every((coding) => CODING_NAME.test(coding)) &&
    codings.indexOf(CHUNKED) === codings.length - 1
  return isUnknown
    ? [new ApiError(501, 'The only supported transfer coding is chunked.'), 'UNKNOWN_TRANSFER_CODING']
    : [new ApiError(400, 'The header Transfer-Encoding is malformed.'), 'INVALID_TRANSFER_ENCODING']
}

/** Checks the request line and headers of a message whose end is certain. A single pass, because it runs for every request. */
export function headerError({ rawHeaders, httpVersion, url = '' }: IncomingMessage): ApiError | undefined {
  let host: string | undefined
  let hostCount = 0
  let authorizationCount = 0
  let contentTypeCount = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]
    switch (name?.length) {
      case 4:
        if (name.toLowerCase() !== 'host') break
        hostCount++
        host = rawHeaders[index + 1]
        break
      case 12:
        if (name.toLowerCase() === 'content-type') contentTypeCount++
        break
      case 13:
        if (name.toLowerCase() === 'authorization') authorizationCount++
        break
    }
  }
  // RFC 9112, section 3.2. Node keeps the first of several Host headers and drops the others.
  if (hostCount > 1 || (hostCount === 0 && httpVersion !== '1.0')) {
    return hostRequired()
  }
  if (host !== undefined && !isAuthority(host)) {
    return new ApiError(400, 'The header Host must be a host name or an IP address, with or without a port.')
  }
  // Node uses the first of these headers, but a proxy may have used the last (RFC 9110, section 5.3).
  if (authorizationCount > 1) {
    return new ApiError(
      400,
      'The request must not have more than one Authorization header.',
      bearerChallenge('invalid_request'),
    )
  }
  if (contentTypeCount > 1)
    return new ApiError(400, 'The request must not have more than one Content-Type header.')
  return targetError(url)
}

/** Creates the 400 for a missing or repeated Host header. */
export function hostRequired(): ApiError {
  return new ApiError(400, 'The request must have exactly one Host header.')
}

/** Creates the 417 for an `Expect` header with any other value than `100-continue`. */
export function unsupportedExpectation(): ApiError {
  return new ApiError(417, 'The only supported expectation is 100-continue.')
}

/** Checks the parts of the request target that the router does not (RFC 9112, section 3.2). */
function targetError(target: string): ApiError | undefined {
  if (target.includes('#')) {
    return new ApiError(400, 'The request target must not have a fragment. Encode # as %23.')
  }
  if (target.startsWith('/')) return undefined
  const authority = authorityOf(target)
  // An http URL must have a host, unlike a Host header (RFC 9110, section 4.2.1).
  if (authority !== undefined && (/^(:|$)/.test(authority) || !isAuthority(authority))) {
    return new ApiError(
      400,
      'The URL in the request line must have a host name or an IP address, with or without a port, and no user name.',
    )
  }
  return undefined
}

/**
 * Matches `uri-host [ ":" port ]` (RFC 3986, section 3.2.2), which may be empty. Rejects commas, which the grammar allows in
 * a name, because a proxy may combine two Host headers with a comma.
 */
const AUTHORITY =
  /^(?:(?:[\w.~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*|\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+)\])(?::\d*)?$/

function isAuthority(text: string): boolean {
  const match = AUTHORITY.exec(text)
  return match !== null && (match[1] === undefined || isIPv6(match[1]))
}

/** The one expectation that HTTP defines. */
export const CONTINUE = '100-continue'

/**
 * Returns the expectation of a request in lower case; undefined if it has none, as with an empty `Expect` header, which is a list
 * (RFC 9110, section 10.1.1). If there are several, returns one that is not `100-continue`. HTTP/1.0 requests have none.
 */
export function expectation({ headers, httpVersion }: IncomingMessage): string | undefined {
  if (headers.expect === undefined || httpVersion === '1.0') return undefined
  const expectations = headers.expect
    .toLowerCase()
    .split(',')
    .map((member) => member.trim())
    .filter((member) => member !== '')
  return expectations.find((member) => member !== CONTINUE) ?? expectations[0]
}
