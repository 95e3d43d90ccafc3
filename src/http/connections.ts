import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'

/** How long callers have to leave by themselves once they are told to, in milliseconds. */
const FAREWELL = 1000

/** How long a request that was being sent when the server stopped to listen has to arrive, in milliseconds. */
const LAST_CALL = 500
const SWEEP_INTERVAL = 100

/** How many connections may be open before idle ones have to go. */
const MOST_OPEN = 10_000

/** What is known of an open connection. */
interface Connection {
  /** The responses that are not yet sent, oldest first. */
  readonly owed: Set<ServerResponse>
  /** The response to the newest request, sent or not. */
  newest?: ServerResponse
}

/** The open connections of an HTTP server, and the responses that each of them still owes. */
export class Connections {
  readonly #open = new Map<Socket, Connection>()
  /** Those that owe no answer, the one that has been so for longest first. */
  readonly #idle = new Set<Socket>()
  readonly #mostOpen: number
  #sweep: NodeJS.Timeout | undefined

  constructor(mostOpen = MOST_OPEN) {
    this.#mostOpen = mostOpen
  }

  /**
   * Keeps count from now on. To be called once, before the server listens. Where very many are open, each new one ends
   * the one that has been idle for longest: callers who open connections and ask nothing, or never end their question,
   * must not use up what the process may open. Where the server has a time-out, a connection is ended when it has been
   * idle, or its client has taken none of the bytes that wait for it, for that long.
   */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      if (this.#open.size >= this.#mostOpen) this.#closeLongestIdle()
      this.#open.set(socket, { owed: new Set() })
      this.#idle.add(socket)
      // Node answers a client that has closed its side, then closes the connection, but says that it keeps it.
      socket.once('end', () => {
        const { newest } = this.#open.get(socket) ?? {}
        if (newest) newest.shouldKeepAlive = false
      })
      socket.once('close', () => {
        this.#open.delete(socket)
        this.#idle.delete(socket)
      })
    })
    server.on('request', ({ socket }, response) => {
      const connection = this.#open.get(socket)
      if (!connection) return
      connection.newest = response
      connection.owed.add(response)
      this.#idle.delete(socket)
      response.once('close', () => {
        connection.owed.delete(response)
        if (connection.owed.size === 0 && !socket.destroyed) this.#idle.add(socket)
      })
    })
    server.on('timeout', (socket: Socket) => {
      // Node cannot tell a client that takes nothing from one that is sent nothing, because it waits for the service.
      const isWaiting = this.#open.has(socket) && !this.#idle.has(socket) && socket.writableLength === 0
      if (!isWaiting) socket.destroy()
    })
    server.once('close', () => clearInterval(this.#sweep))
  }

  /** The response to the newest request on a connection, and whether it is still owed; none where nothing was asked. */
  newestOn(socket: Socket): { response: ServerResponse; isOwed: boolean } | undefined {
    const { owed, newest } = this.#open.get(socket) ?? {}
    return newest && { response: newest, isOwed: owed?.has(newest) ?? false }
  }

  /** Whether a connection ends with this response once the server stops: true unless another one comes after it. */
  isLast(response: ServerResponse): boolean {
    const newest = this.#open.get(response.req.socket)?.newest
    return !response.shouldKeepAlive || newest === undefined || newest === response
  }

  /**
   * Brings every connection to its end without cutting off an answer. Callers that are busy learn from
   * `Connection: close` that their response is the last on this connection, and have a moment to turn elsewhere, in
   * which the server goes on listening. Then what is idle is closed: Node's `closeIdleConnections` would leave open
   * those that have sent no request at all or a part of one. Resolves when the server should stop to listen.
   */
  async drain(): Promise<void> {
    if (this.#open.size > 0) await setTimeout(FAREWELL)
    const sweepFrom = performance.now() + LAST_CALL
    this.#sweep = setInterval(() => {
      if (performance.now() >= sweepFrom) this.#closeIdle()
    }, SWEEP_INTERVAL)
  }

  #closeIdle(): void {
    for (const socket of this.#idle) socket.destroy()
  }

  #closeLongestIdle(): void {
    const [longest] = this.#idle
    longest?.destroy()
  }
}
