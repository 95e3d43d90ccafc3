import { randomUUID } from 'node:crypto'
import { type IncomingMessage, METHODS, type Server } from 'node:http'
import { isIPv6, type Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { challenge } from '../../contract/challenge.ts'
import { ApiError } from '../../contract/errors.ts'
import type { Connections } from './connections.ts'
import { type ConnectionRefusals, notHttp, writeError } from './malformed-requests.ts'

/**
 * Takes over what Node would answer by itself and without a body, or would let through: a missing, repeated or
 * malformed Host, header fields that must not be repeated, a fragment in the request target, an unknown expectation,
 * CONNECT. The server must have been made with `requireHostHeader: false`.
 */
export function enforceProtocol(app: FastifyInstance, connections: Connections): void {
  app.addHook('onRequest', (request, _reply, done) => {
    done(headFault(request.raw))
  })
  // After the check of the key: 401 comes first.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const expected = expectation(request.raw)
    if (expected === undefined || expected === CONTINUE) done()
    else done(new ApiError(417, 'The only expectation that can be met is 100-continue.'))
  })
  const server: Server = app.server
  // Node would drop what comes after the 2000th header without a word; their size has a limit of its own.
  server.maxHeadersCount = 0
  server.on('checkContinue', (request, response) => server.emit('request', request, response))
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
  // The type says Duplex, but the sockets of this server are those that it accepted. Without a listener for `upgrade`,
  // Node serves a request to upgrade as if it did not ask for it (RFC 9110, section 7.8).
  server.on('connect', (_request, socket: Socket) => refuseConnect(socket, connections))
}

/**
 * Refuses CONNECT once the requests before it are answered (RFC 9112, section 9.3.2). Node hands over a socket without
 * any of its own listeners: without one for errors a reset would end the process, and without those for time-outs and
 * `drain` the answers that are still pending would come to no end.
 */
function refuseConnect(socket: Socket, connections: Connections): void {
  socket.on('error', () => socket.destroy())
  socket.on('timeout', () => socket.destroy())
  socket.on('drain', () => connections.currentOn(socket)?.emit('drain'))
  const refuse = (): void =>
    writeError(socket, new ApiError(405, 'CONNECT is not served here.', { allow: '' }), randomUUID())
  const newest = connections.newestOn(socket)
  if (newest?.isOwed) newest.response.once('close', refuse)
  else refuse()
}

/**
 * Keeps from every listener of `request` what Node's parser takes for a request and HTTP does not, and all that comes
 * on a connection behind such a message. It ends the connection as garbage does. To be called once those listeners are
 * added.
 */
export function refuseBrokenMessages(server: Server, refusals: ConnectionRefusals): void {
  const listeners = server.rawListeners('request')
  server.removeAllListeners('request')
  server.on('request', (request: IncomingMessage, response: unknown) => {
    const { socket } = request
    if (refusals.isRefused(socket)) return
    const [answer, reason] = messageFault(request) ?? []
    if (answer === undefined || reason === undefined) {
      for (const listener of listeners) Reflect.apply(listener, server, [request, response])
      return
    }
    refusals.refuse(socket, answer, reason)
    // What is already read may hold further requests; no more is read, and the connection ends shortly.
    socket.pause()
  })
}

/**
 * CONNECT is an event of its own; any other method that is not among these came with another protocol, such as RTSP. So did
 * any other version: HTTP/2 has no such request line.
 */
const methods = new Set(METHODS)
const versions = ['1.1', '1.0']

const CHUNKED = 'chunked'
const codingName = /^[\w!#$%&'*+.^`|~-]+(?:[ \t]*;.*)?$/

/** What makes it unknown where a message ends, or that it is HTTP: nothing behind it can be trusted to be a request. */
function messageFault({
  method = '',
  headers,
  httpVersion,
}: IncomingMessage): [answer: ApiError, reason: string] | undefined {
  if (!methods.has(method) || !versions.includes(httpVersion)) return [notHttp(), 'UNKNOWN_PROTOCOL']
  const transfer = headers['transfer-encoding']
  if (transfer === undefined) return undefined
  const codings = transfer
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
  if (codings.length === 1 && codings[0] === CHUNKED && httpVersion !== '1.0') return undefined
  // RFC 9112, section 6.1. Node's parser has seen to it that `chunked` is the last one where there is any.
  const isUnknown =
    httpVersion !== '1.0' &&
    codings.every((coding) => codingName.test(coding)) &&
    codings.indexOf(CHUNKED) === codings.length - 1
  return isUnknown
    ? [new ApiError(501, 'The only transfer coding that is accepted is chunked.'), 'UNKNOWN_TRANSFER_CODING']
    : [new ApiError(400, 'The header Transfer-Encoding is malformed.'), 'INVALID_TRANSFER_ENCODING']
}

/** What is wrong with a head that can be told from the next one. One pass, as every request pays for it. */
function headFault({ rawHeaders, httpVersion, url = '' }: IncomingMessage): ApiError | undefined {
  let host: string | undefined
  let hosts = 0
  let authorizations = 0
  let types = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]
    switch (name?.length) {
      case 4:
        if (name.toLowerCase() !== 'host') break
        hosts++
        host = rawHeaders[at + 1]
        break
      case 12:
        if (name.toLowerCase() === 'content-type') types++
        break
      case 13:
        if (name.toLowerCase() === 'authorization') authorizations++
        break
    }
  }
  // RFC 9112, section 3.2. Node keeps the first of several Host lines and drops the others.
  if (hosts > 1 || (hosts === 0 && httpVersion !== '1.0')) {
    return new ApiError(400, 'The request must have exactly one Host header.')
  }
  if (host !== undefined && !isAuthority(host)) {
    return new ApiError(400, 'The header Host must be a host name or an IP address, with or without a port.')
  }
  // Node keeps the first of these two, while a proxy may have looked at the last (RFC 9110, section 5.3).
  if (authorizations > 1) {
    return new ApiError(
      400,
      'The request must not have more than one Authorization header.',
      challenge('invalid_request'),
    )
  }
  if (types > 1) return new ApiError(400, 'The request must not have more than one Content-Type header.')
  return targetFault(url)
}

const absoluteForm = /^https?:\/\/([^/?#]*)/i

/** Faults of the request target that are not the router's (RFC 9112, section 3.2). */
function targetFault(target: string): ApiError | undefined {
  if (target.includes('#')) {
    return new ApiError(400, 'The request target must not have a fragment; write # as %23.')
  }
  if (target.startsWith('/')) return undefined
  const authority = absoluteForm.exec(target)?.[1]
  // An http address must have a host, which a Host header need not (RFC 9110, section 4.2.1).
  if (authority !== undefined && (/^(:|$)/.test(authority) || !isAuthority(authority))) {
    return new ApiError(
      400,
      'The address in the request line must have a host name or an IP address, with or without a port, and no user.',
    )
  }
  return undefined
}

/**
 * `uri-host [ ":" port ]` (RFC 3986, section 3.2.2), which may be empty. The grammar has a comma in a name, too; it is
 * refused, because it is what two Host headers become where something joins them.
 */
const authorityShape =
  /^(?:(?:[\w.~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*|\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+)\])(?::\d*)?$/

function isAuthority(text: string): boolean {
  const match = authorityShape.exec(text)
  return match !== null && (match[1] === undefined || isIPv6(match[1]))
}

/** The one expectation that HTTP defines. */
export const CONTINUE = '100-continue'

/** The request's `Expect` in lower case; an HTTP/1.0 client has none (RFC 9110, section 10.1.1). */
export function expectation({ headers, httpVersion }: IncomingMessage): string | undefined {
  return httpVersion === '1.0' ? undefined : headers.expect?.trim().toLowerCase()
}
