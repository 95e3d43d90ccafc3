import { randomUUID } from 'node:crypto'
import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ApiError } from '../errors.ts'
import { writeError } from './client-errors.ts'
import type { Connections } from './connections.ts'

/**
 * Takes over what Node would answer by itself and without a body: a missing Host, an unknown expectation, CONNECT;
 * and has `100 Continue` sent only once the key was checked, so that nobody without one is asked for a body.
 * The server must have been made with `requireHostHeader: false`.
 */
export function enforceProtocol(app: FastifyInstance, connections: Connections): void {
  app.addHook('onRequest', (request, _reply, done) => {
    done(protocolFault(request))
  })
  app.addHook('preParsing', (request, reply, _payload, done) => {
    if (expectation(request) !== undefined) reply.raw.writeContinue()
    done()
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

function protocolFault(request: FastifyRequest): ApiError | undefined {
  const { rawHeaders, httpVersion } = request.raw
  // RFC 9112, section 3.2. Node keeps the first of several Host lines and drops the others.
  const hosts = rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === 'host').length
  if (hosts > 1 || (hosts === 0 && httpVersion !== '1.0')) {
    return new ApiError(400, 'The request must have exactly one Host header.')
  }
  const transfer = request.headers['transfer-encoding']
  if (transfer !== undefined && transfer.toLowerCase() !== 'chunked') {
    return new ApiError(400, 'The only transfer coding that is accepted is chunked.')
  }
  const expected = expectation(request)
  if (expected !== undefined && expected !== '100-continue') {
    return new ApiError(417, 'The only expectation that can be met is 100-continue.')
  }
  return undefined
}

/** The request's `Expect` in lower case; an HTTP/1.0 client has none (RFC 9110, section 10.1.1). */
function expectation({ headers, raw }: FastifyRequest): string | undefined {
  return raw.httpVersion === '1.0' ? undefined : headers.expect?.trim().toLowerCase()
}
