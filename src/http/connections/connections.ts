import { once } from 'node:events'
import type { Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'

/** Drain period: how long the server goes on listening after it has begun to say `Connection: close`. */
const DRAIN_MS = 1000

/** How long requests may wait for the port to be closed. */
const CLOSE_PORT_TIMEOUT_MS = 500

/** Grace period: how long a connection must have been idle once the port is closed before it is closed, too. */
const IDLE_GRACE_MS = 500
const SWEEP_INTERVAL_MS = 100

/** How many connections may be open before idle ones have to go. */
const MOST_OPEN = 10_000

/** A port that a server shares with those of other processes. */
export interface SharedPort {
  /** Resolves once every connection that was waiting to be accepted before the call has reached a server. */
  delivered(): Promise<void>
  /** Resolves once all servers that stop have closed the port. To be called after this one has. */
  closed(): Promise<void>
}

const ownPort: SharedPort = {
  // Node accepts a connection in each iteration of the event loop. The first one may already be past that.
  async delivered() {
    await setImmediate()
    await setImmediate()
  },
  async closed() {},
}

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
  /**
   * Those without a pending response, the one that has been so for longest first, and since when; only what begins
   * while the server stops has a time (`performance.now()`).
   */
  readonly #idle = new Map<Socket, number>()
  readonly #mostOpen: number
  #accepted = 0
  #isStopping = false
  /** The requests that begin when the port is closed, while it is being closed. */
  #deferred: (() => void)[] | undefined

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
      this.#accepted++
      if (this.#open.size >= this.#mostOpen) this.#closeLongestIdle()
      this.#open.set(socket, { owed: new Set() })
      this.#setIdle(socket)
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
      // Not the socket of the response, which has none until those before it have ended.
      const connection = this.#open.get(socket)
      if (!connection) return
      connection.newest = response
      connection.owed.add(response)
      this.#idle.delete(socket)
      response.once('close', () => {
        connection.owed.delete(response)
        if (connection.owed.size === 0 && !socket.destroyed) this.#setIdle(socket)
      })
    })
    server.on('timeout', (socket: Socket) => {
      // Node cannot tell a client that takes nothing from one that is sent nothing, because it waits for the service.
      const isWaiting = this.#open.has(socket) && !this.#idle.has(socket) && socket.writableLength === 0
      if (!isWaiting) socket.destroy()
    })
  }

  /** The response to the newest request on a connection, and whether it is still owed; none where nothing was asked. */
  newestOn(socket: Socket): { response: ServerResponse; isOwed: boolean } | undefined {
    const { owed, newest } = this.#open.get(socket) ?? {}
    return newest && { response: newest, isOwed: owed?.has(newest) ?? false }
  }

  /** The oldest response that is still pending on a connection: the one whose bytes go out now. */
  currentOn(socket: Socket): ServerResponse | undefined {
    const [current] = this.#open.get(socket)?.owed ?? []
    return current
  }

  /** Whether a connection ends with this response once the server stops: true unless another one comes after it. */
  isLast(response: ServerResponse): boolean {
    const newest = this.#open.get(response.req.socket)?.newest
    return !response.shouldKeepAlive || newest === undefined || newest === response
  }

  /** Begins a request, at once or, while the port is being closed, when that is done. */
  begin(request: () => void): void {
    if (this.#deferred) this.#deferred.push(request)
    else request()
  }

  /**
   * Stops the server without cutting off an answer or losing a request. Clients learn from `Connection: close` that a
   * response is the last on its connection, and have a drain period to turn elsewhere, in which the server goes on
   * listening. Then it closes the port, answers what is pending, and closes what stays idle. Resolves when no connection
   * is left.
   */
  async stop(server: Server, port: SharedPort = ownPort): Promise<void> {
    if (!server.listening) return
    this.#isStopping = true
    // Servers that share a port close it at the same time.
    if (this.#open.size > 0 || port !== ownPort) await setTimeout(DRAIN_MS)
    const closed = once(server, 'close')
    await this.#closePort(server, port)
    const portClosedAt = performance.now()
    const sweep = setInterval(() => void this.#closeIdle(portClosedAt), SWEEP_INTERVAL_MS)
    await closed
    clearInterval(sweep)
  }

  /**
   * Closes the port when no connection waits to be accepted: the system would reset it, and the request on it would be
   * lost. Meanwhile requests are deferred, because clients connect again after each `Connection: close`, so that there
   * would be no end of connections. A client that connects in the moment between the last look and the end is lost.
   */
  async #closePort(server: Server, port: SharedPort): Promise<void> {
    this.#deferred = []
    const deadline = performance.now() + CLOSE_PORT_TIMEOUT_MS
    let before: number
    do {
      before = this.#accepted
      await port.delivered()
    } while (this.#accepted > before && performance.now() < deadline)
    // Not the method of the HTTP server, which also closes connections: those whose client has not yet read a response
    // to its end, and idle ones on which a request may be on its way.
    NetServer.prototype.close.call(server)
    await port.closed()
    const deferred = this.#deferred
    this.#deferred = undefined
    for (const request of deferred) request()
  }

  #setIdle(socket: Socket): void {
    this.#idle.set(socket, this.#isStopping ? performance.now() : 0)
  }

  /** Closes what has been idle for the grace period; Node's own method leaves out those that have sent a part of a request. */
  async #closeIdle(portClosedAt: number): Promise<void> {
    // A request that has already arrived is read in between.
    await setImmediate()
    const latest = performance.now() - IDLE_GRACE_MS
    for (const [socket, since] of this.#idle) {
      if (Math.max(since, portClosedAt) <= latest) socket.destroy()
    }
  }

  #closeLongestIdle(): void {
    const [longest] = this.#idle.keys()
    longest?.destroy()
  }
}
