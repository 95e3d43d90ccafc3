import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Maximum requests of a connection whose responses have not ended. Behind the last of them, the connection closes. Node parses and
 * starts all that it has read, up to 64 KB at once, which could be thousands.
 */
export const MAX_PIPELINED = 16

/** A connection of the HTTP server. Node serves its requests; this knows which of them are open, and whether any more are served. */
export class Connection {
  readonly #socket: Socket
  /** Responses that have not ended, oldest first. */
  readonly #open = new Set<ServerResponse>()
  /**
   * The newest request that is served, answered or not. Its response is not kept: it refers to the body that it has sent, and an idle
   * connection would keep a whole list in memory.
   */
  #newest: IncomingMessage | undefined
  #isStopped = false
  /** Returns the error that ends the connection behind the open responses. */
  #refusal: (() => string) | undefined

  constructor(socket: Socket) {
    this.#socket = socket
    // Node before 24 leaves responses open that wait behind another one when their connection is lost.
    socket.once('close', () => {
      for (const response of this.#open) if (response.socket === null) response.destroy().emit('close')
    })
  }

  /** Whether it waits for a request, or for the rest of one. */
  get isIdle(): boolean {
    return ![...this.#open].some(({ req }) => req.complete)
  }

  /** Begins a request. Returns false if it must not be served. */
  begin(response: ServerResponse): boolean {
    if (this.#isStopped) return false
    this.#newest = response.req
    this.#isStopped = this.#open.add(response).size === MAX_PIPELINED
    response.once('close', () => {
      this.#open.delete(response)
      this.#endIfRefused()
    })
    return true
  }

  /** Serves nothing that follows the newest request: it could be a smuggled request. */
  stopAfterNewest(): void {
    this.#isStopped = true
  }

  /**
   * Ends the connection with an error, behind the responses to the requests before it. If the error is in the body of a request that
   * has already been answered, there is no second response.
   *
   * @param refusal returns the response; called when it is sent
   */
  refuse(refusal: () => string): void {
    const isAnswered = ![...this.#open].some(({ req, headersSent }) => req === this.#newest && !headersSent)
    this.#refusal ??= this.#newest?.complete === false && isAnswered ? () => '' : refusal
    this.#isStopped = true
    this.#endIfRefused()
  }

  /** Whether the connection closes after a response whose headers are about to be sent. */
  closesAfter({ req }: ServerResponse, isServerClosing: boolean): boolean {
    if (req !== this.#newest || this.#refusal !== undefined) return false
    this.#isStopped ||= isServerClosing
    return this.#isStopped
  }

  #endIfRefused(): void {
    if (this.#refusal === undefined || !this.isIdle || !this.#socket.writable) return
    this.#socket.write(this.#refusal())
    this.#socket.destroySoon()
  }
}
