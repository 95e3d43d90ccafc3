import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** How long a client that is in the middle of sending a request has for the rest of it, in milliseconds. */
const SWEEP_DELAY = 1000
const SWEEP_INTERVAL = 100

/** The open connections of an HTTP server, and the responses that each of them still owes. */
export class Connections {
  readonly #owed = new Map<Socket, Set<ServerResponse>>()
  #sweep: NodeJS.Timeout | undefined

  /** Keeps count from now on. To be called once, before the server listens. */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#owed.set(socket, new Set())
      socket.once('close', () => this.#owed.delete(socket))
    })
    server.on('request', (_request, response) => {
      const owed = response.socket && this.#owed.get(response.socket)
      owed?.add(response)
      response.once('close', () => owed?.delete(response))
    })
    server.once('close', () => clearInterval(this.#sweep))
  }

  /** The responses to requests on this connection that are not yet sent, oldest first. */
  owedOn(socket: Socket): ServerResponse[] {
    return [...(this.#owed.get(socket) ?? [])]
  }

  /**
   * Brings every connection to its end without cutting off an answer, so that `server.close()` can end: each response
   * still owed announces that it is the last, and what is idle after a moment is closed. Node's `closeIdleConnections`
   * leaves open those that have sent no request at all or a part of one.
   */
  drain(): void {
    for (const owed of this.#owed.values()) {
      for (const response of owed) {
        if (!response.headersSent) response.setHeader('connection', 'close')
      }
    }
    const sweepFrom = performance.now() + SWEEP_DELAY
    this.#sweep = setInterval(() => {
      if (performance.now() >= sweepFrom) this.#closeIdle()
    }, SWEEP_INTERVAL)
  }

  #closeIdle(): void {
    for (const [socket, owed] of this.#owed) {
      if (owed.size === 0) socket.destroy()
    }
  }
}
