import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { removeItem } from '../../collections/remove-item.ts'
import { TransientMap } from '../../collections/transient-map.ts'

/** Maximum open connections before a new one closes the connection that has been idle longest. */
const MAX_OPEN = 10_000

interface Connection {
  /** Responses that are not yet sent, oldest first. */
  readonly pending: ServerResponse[]
  /**
   * The newest request, answered or not. Its response is not kept: it refers to the body that it has sent, and an idle
   * connection would keep a whole list in memory.
   */
  newestRequest?: IncomingMessage
}

/** Tracks the open connections of an HTTP server, and the pending responses of each. */
export class Connections {
  readonly #open = new Map<Socket, Connection>()
  /**
   * Connections without a pending response, longest idle first, and since when, in `performance.now()` time; 0 for those
   * that were idle before `trackIdleTime`.
   */
  readonly #idle = new TransientMap<Socket, number>()
  readonly #maxOpen: number
  #accepted = 0
  #isIdleTimeTracked = false

  constructor(maxOpen = MAX_OPEN) {
    this.#maxOpen = maxOpen
  }

  /**
   * Tracks all connections of the server. Call it once, before the server listens. At the maximum, a new connection closes
   * the one that has been idle longest, so that clients that send nothing, or never complete a request, cannot use up the
   * file descriptors of the process. The timeout of the server closes connections that are idle, or whose client stops
   * reading a response, for that long. A connection whose last request was answered before it had arrived closes once it has,
   * or when its request timeout expires.
   */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#accepted++
      if (this.#open.size >= this.#maxOpen) this.#closeLongestIdle()
      this.#open.set(socket, { pending: [] })
      this.#setIdle(socket)
      // Node calls it after the last response. Unread data would reset the connection while the client is still sending, and
      // before it has read that response (RFC 9112, section 9.6).
      socket.destroySoon = () => {
        const request = this.newestRequestOn(socket)
        if (request === undefined || request.complete) {
          Socket.prototype.destroySoon.call(socket)
          return
        }
        request.once('close', () => socket.destroy())
        socket.end()
      }
      // Node closes the connection after it has answered a half-closed client, but announces keep-alive.
      socket.once('end', () => {
        const newest = this.newestPendingOn(socket)
        if (newest) newest.shouldKeepAlive = false
      })
      socket.once('close', () => {
        this.#open.delete(socket)
        this.#idle.delete(socket)
      })
    })
    server.on('request', (request, response) => {
      // Not the socket of the response, which is null until the responses before it are sent.
      const { socket } = request
      const connection = this.#open.get(socket)
      if (!connection) return
      connection.newestRequest = request
      connection.pending.push(response)
      this.#idle.delete(socket)
      response.once('close', () => {
        removeItem(connection.pending, response)
        if (connection.pending.length === 0 && !socket.destroyed) this.#setIdle(socket)
      })
    })
    server.on('timeout', (socket: Socket) => {
      // Node cannot tell a client that has stopped reading from one that waits for the service to respond.
      const isWaitingForService =
        this.#open.has(socket) && !this.#idle.has(socket) && socket.writableLength === 0
      if (!isWaitingForService) socket.destroy()
    })
  }

  /** Number of open connections. */
  get size(): number {
    return this.#open.size
  }

  /** Number of connections accepted so far. */
  get accepted(): number {
    return this.#accepted
  }

  /** The newest request on a connection, answered or not. */
  newestRequestOn(socket: Socket): IncomingMessage | undefined {
    return this.#open.get(socket)?.newestRequest
  }

  /** The newest pending response on a connection. */
  newestPendingOn(socket: Socket): ServerResponse | undefined {
    return this.#open.get(socket)?.pending.at(-1)
  }

  /** The newest pending response on a connection whose request has arrived completely. */
  newestCompleteOn(socket: Socket): ServerResponse | undefined {
    return this.#open.get(socket)?.pending.findLast(({ req }) => req.complete)
  }

  /** The oldest pending response on a connection, which is the one being sent. */
  currentOn(socket: Socket): ServerResponse | undefined {
    return this.#open.get(socket)?.pending[0]
  }

  /** Whether a response is the last one on its connection if the server is stopping. */
  isLast(response: ServerResponse): boolean {
    const newest = this.newestPendingOn(response.req.socket)
    return !response.shouldKeepAlive || newest === undefined || newest === response
  }

  /** Records from now on when a connection becomes idle. */
  trackIdleTime(): void {
    this.#isIdleTimeTracked = true
  }

  /**
   * Closes connections that have been idle since before `time`, in `performance.now()` time. Unlike Node's own method, it
   * includes connections with an incomplete request.
   */
  closeIdleSince(time: number): void {
    for (const [socket, idleSince] of this.#idle) {
      if (idleSince <= time) socket.destroy()
    }
  }

  #setIdle(socket: Socket): void {
    this.#idle.set(socket, this.#isIdleTimeTracked ? performance.now() : 0)
  }

  #closeLongestIdle(): void {
    const [longestIdle] = this.#idle.keys()
    longestIdle?.destroy()
  }
}
