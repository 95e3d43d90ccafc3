import type { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { setTimeout } from 'node:timers'

/** Maximum requests that wait behind the one in flight. Behind the last of them, the connection closes. */
export const MAX_PIPELINED = 16

/** How long the client may take to read the last response before the connection is destroyed. */
const CLOSE_TIMEOUT_MS = 1000

/** A connection of the HTTP server. Its requests are served one at a time, in order. */
export class Connection {
  readonly socket: Socket
  /** When the request in flight could start, or else when the connection became idle, in `performance.now()` time. */
  since = performance.now()
  readonly #serve: (response: ServerResponse) => void
  #current: ServerResponse | undefined
  /** Responses to pipelined requests that have not started, oldest first. */
  readonly #waiting: ServerResponse[] = []
  /**
   * The newest request, answered or not. Its response is not kept: it refers to the body that it has sent, and an idle
   * connection would keep a whole list in memory.
   */
  #newest: IncomingMessage | undefined
  /** Returns the error that ends the connection, after the responses to the requests before it. */
  #refusal: (() => string) | undefined
  #isStopped = false

  constructor(socket: Socket, serve: (response: ServerResponse) => void) {
    this.socket = socket
    this.#serve = serve
    // Node resumes the socket whenever a message or its body ends.
    socket.on('resume', () => {
      if (this.#isStopped) socket.pause()
    })
    // Node calls it after the last response. Destroying the socket would reset the connection while the client is still
    // sending, and before it has read that response (RFC 9112, section 9.6).
    socket.destroySoon = () => {
      if (this.#newest?.complete === false || this.#isStopped) this.#end()
      else Socket.prototype.destroySoon.call(socket)
    }
  }

  /** Whether nothing else that arrives is served. */
  get isStopped(): boolean {
    return this.#isStopped
  }

  /** Whether it waits for a request, or for the rest of one. */
  get isIdle(): boolean {
    return this.#current?.req.complete !== true && this.socket.writable
  }

  /** The response to the request in flight. */
  get current(): ServerResponse | undefined {
    return this.#current
  }

  /** Serves a parsed request: now, or after those before it. */
  receive(response: ServerResponse): void {
    this.#newest = response.req
    if (this.#current === undefined) this.#start(response)
    else if (this.#waiting.push(response) === MAX_PIPELINED) this.#stopReading()
  }

  /** Forgets the newest request if its body is incomplete: Node has left the connection, and will not read the rest. */
  leave(): void {
    if (this.#waiting.at(-1)?.req.complete === false) this.#waiting.pop()
  }

  /** Serves nothing that follows the request in flight: it could be a smuggled request. */
  stopAfterCurrent(): void {
    this.#stopReading()
    this.#waiting.length = 0
    this.#refusal = undefined
  }

  /**
   * Ends the connection with an error, after the responses to the requests before it. A request whose body has the error, and
   * that was answered early, gets no second response.
   *
   * @param refusal returns the message; called when it is sent
   */
  refuse(refusal: () => string): void {
    if (this.#refusal !== undefined) return
    this.#stopReading()
    const incomplete = this.#newest?.complete === false ? this.#newest : undefined
    if (incomplete !== undefined && this.#waiting.at(-1)?.req === incomplete) this.#waiting.pop()
    else if (incomplete !== undefined) {
      if (this.#current === undefined) this.#end()
      else if (!this.#current.headersSent) this.#end(refusal())
      return
    }
    this.#refusal = refusal
    if (this.#current === undefined) this.#end(refusal())
  }

  /**
   * Whether the connection closes after the current response, whose headers are about to be sent.
   *
   * @param isLeaving whether the server wants to close it
   */
  closesAfter({ req, shouldKeepAlive }: ServerResponse, isLeaving: boolean): boolean {
    // The client has asked for it, or the rest of its body is not read.
    if (!shouldKeepAlive || !req.complete) return true
    if (this.#waiting.length > 0) return false
    return isLeaving || this.socket.readableEnded || (this.#isStopped && this.#refusal === undefined)
  }

  #start(response: ServerResponse): void {
    this.#current = response
    this.since = performance.now()
    response.once('close', () => this.#continue())
    this.#serve(response)
  }

  #continue(): void {
    this.#current = undefined
    this.since = performance.now()
    if (!this.socket.writable) return
    const next = this.#waiting.shift()
    if (next !== undefined) this.#start(next)
    else if (this.#isStopped) this.#end(this.#refusal?.())
  }

  #stopReading(): void {
    this.#isStopped = true
    this.socket.pause()
  }

  /** Closes the connection after everything that was written to it, and after `last`, without reading any more. */
  #end(last = ''): void {
    this.#stopReading()
    if (this.socket.writable) this.socket.end(last)
    setTimeout(() => this.socket.destroy(), CLOSE_TIMEOUT_MS).unref()
  }
}
