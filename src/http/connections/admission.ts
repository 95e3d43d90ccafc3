import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { clearTimeout, setImmediate, setTimeout } from 'node:timers'
import type { FastifyInstance } from 'fastify'
import { type ApiError, serviceUnavailable } from '../../contract/errors.ts'
import type { RequestStatistics } from './request-statistics.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Its place among the requests in flight; null before the first hook. */
    slot: Slot | null
  }
}

/**
 * Maximum requests started in one event-loop iteration, and in one that accepted a connection. Node accepts one
 * connection in each iteration, so long iterations make new clients wait.
 */
const MAX_STARTS = 64
const MAX_STARTS_WITH_NEW_CONNECTION = 4

/** How long the first request of a connection may wait to be started. */
const MAX_WAIT_MS = 1000

/** Maximum requests in flight, which bounds the memory and the database work that they cost. */
const MAX_IN_FLIGHT = 10_000

/**
 * Maximum requests of one connection in flight, and of all connections together beyond one each. They go to PostgreSQL
 * in one batch.
 */
const MAX_CONCURRENT_PER_CONNECTION = 32
const MAX_CONCURRENT = 256

/** Maximum requests that are parsed and not yet started, of all connections. Each takes some 2 kB. */
const MAX_QUEUED = 20_000

/** A connection is not read while more of its requests than this wait. */
const PAUSE_ABOVE = 16

/** How long a connection that is to be closed may take to finish the request that it has in flight. */
const CLOSE_TIMEOUT_MS = 1000

/**
 * The place of one request among those in flight. It is taken when the request starts, and given back when the response
 * has closed and all work that was started for it has settled: started work keeps its slot after the client disconnects.
 */
export class Slot {
  /** When the request could have been started, as `performance.now()` counts. */
  readonly since: number
  /** Why the request is not to be served; undefined if it is. */
  readonly refusal: ApiError | undefined
  readonly #statistics: RequestStatistics
  #holders = 0

  constructor(
    response: ServerResponse,
    since: number,
    refusal: ApiError | undefined,
    statistics: RequestStatistics,
  ) {
    this.since = since
    this.refusal = refusal
    this.#statistics = statistics
    this.#take()
    response.once('close', () => this.#giveBack())
  }

  /** Keeps the slot until the work has settled, and returns its outcome. */
  async during<T>(work: Promise<T>): Promise<T> {
    this.#take()
    try {
      return await work
    } finally {
      this.#giveBack()
    }
  }

  #take(): void {
    if (this.#holders++ === 0) this.#statistics.inFlight++
  }

  #giveBack(): void {
    if (--this.#holders === 0) this.#statistics.inFlight--
  }
}

/** Has the handlers of a scope keep the slot of their request until they are done. To be called before routes are added. */
export function keepSlotsInHandlers(scope: FastifyInstance): void {
  scope.addHook('onRoute', (route) => {
    const { handler } = route
    route.handler = function (request, reply) {
      const result: unknown = handler.call(this, request, reply)
      return result instanceof Promise ? request.slot?.during(result) : result
    }
  })
}

/** A request that is parsed and not yet started. */
interface Queued {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** A connection on which there was a request. */
interface Connection {
  readonly socket: Socket
  /** Queued requests, oldest first. */
  queue: Queued[]
  /** The requests in flight, by their responses. All have the same method. */
  readonly inFlight: Map<ServerResponse, Slot>
  /** The method of the request that was started last. */
  method: string | undefined
  /** When the oldest queued request became the next to start, as `performance.now()` counts. */
  since: number
  isPaused: boolean
  /** Set once the connection is to be closed because too many requests are queued. */
  closeTimer: NodeJS.Timeout | undefined
}

export interface AdmissionOptions {
  /** Gets each request when it is started. */
  readonly handler: RequestListener
  /** True for a request that does not wait behind those of other kinds, such as a health check. */
  readonly isUrgent: (request: IncomingMessage) => boolean
  /** Where the requests in flight and those that wait are counted. */
  readonly statistics: RequestStatistics
}

/**
 * Starts the requests of an HTTP server so that no connection keeps the others waiting. Node parses all that it reads,
 * 64 kB of pipelined requests at a time, and hands every request over at once. Here they wait in a queue of their
 * connection, and the connections take part in a round-robin with a bounded number of starts in each event-loop
 * iteration. A connection with a long queue is not read.
 *
 * Pipelined requests of one method are in flight side by side, within bounds. A request of another method waits until
 * all before it are answered, so that a list has the updates that were sent before it and not those sent after
 * (RFC 9112, section 9.3.2).
 */
export class Admission {
  readonly #handler: RequestListener
  readonly #isUrgent: (request: IncomingMessage) => boolean
  readonly #statistics: RequestStatistics
  readonly #connections = new Map<Socket, Connection>()
  /** Connections whose next request can start, the one that has waited longest first. */
  readonly #ready = new Set<Connection>()
  readonly #readyUrgent = new Set<Connection>()
  /** Paused connections whose queue is empty again. */
  readonly #resumable = new Set<Connection>()
  #starts = 0
  #isIterationEnding = false
  #hasNewConnection = false

  constructor({ handler, isUrgent, statistics }: AdmissionOptions) {
    this.#handler = handler
    this.#isUrgent = isUrgent
    this.#statistics = statistics
  }

  /** Starts the requests of the server from now on. To be called once, before the server listens. */
  schedule(server: Server): void {
    server.on('connection', () => {
      this.#hasNewConnection = true
    })
    server.on('request', (request, response) => this.#add(request, response))
  }

  /** The slot of a request in flight. */
  slotOf(response: ServerResponse): Slot | undefined {
    return this.#connections.get(response.req.socket)?.inFlight.get(response)
  }

  #add(request: IncomingMessage, response: ServerResponse): void {
    const connection = this.#connectionOf(request.socket)
    // The connection will be closed before this one could be answered.
    if (connection.closeTimer !== undefined) return
    const { queue } = connection
    if (queue.length === 0 && this.#canStartBeside(connection, request) && this.#canStartNow()) {
      this.#start(connection, { request, response }, performance.now())
      return
    }
    queue.push({ request, response })
    this.#statistics.queued++
    if (queue.length === 1) this.#advance(connection)
    if (queue.length > PAUSE_ABOVE) this.#pause(connection)
    if (this.#statistics.queued > MAX_QUEUED) this.#closeLongestQueue()
  }

  #connectionOf(socket: Socket): Connection {
    const known = this.#connections.get(socket)
    if (known !== undefined) return known
    const connection: Connection = {
      socket,
      queue: [],
      inFlight: new Map(),
      method: undefined,
      since: 0,
      isPaused: false,
      closeTimer: undefined,
    }
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#forget(connection))
    // Node resumes the socket itself whenever a message or its body ends.
    socket.on('resume', () => {
      if (connection.isPaused) socket.pause()
    })
    return connection
  }

  #forget(connection: Connection): void {
    clearTimeout(connection.closeTimer)
    this.#connections.delete(connection.socket)
    this.#discardQueue(connection)
    // Node tells only the response whose bytes go out that the connection has closed, and not those behind it.
    for (const response of connection.inFlight.keys()) {
      if (response.socket === null) response.emit('close')
    }
  }

  #discardQueue(connection: Connection): void {
    this.#statistics.queued -= connection.queue.length
    connection.queue = []
    this.#ready.delete(connection)
    this.#readyUrgent.delete(connection)
    this.#resumable.delete(connection)
  }

  /** Whether a request may start without waiting for other connections. */
  #canStartNow(): boolean {
    return this.#ready.size === 0 && this.#readyUrgent.size === 0 && this.#starts < this.#maxStarts
  }

  /** Whether a request may start beside those in flight on its connection. */
  #canStartBeside({ inFlight, method }: Connection, request: IncomingMessage): boolean {
    if (inFlight.size === 0) return true
    return (
      request.method === method &&
      inFlight.size < MAX_CONCURRENT_PER_CONNECTION &&
      this.#statistics.inFlight < MAX_CONCURRENT
    )
  }

  get #maxStarts(): number {
    return this.#hasNewConnection ? MAX_STARTS_WITH_NEW_CONNECTION : MAX_STARTS
  }

  /** Starts what can start now of a connection's queue, and has the rest take part in the round-robin. */
  #advance(connection: Connection): void {
    // Node sends nothing more on a connection that is being closed.
    if (!connection.socket.writable) this.#discardQueue(connection)
    if (this.#ready.has(connection) || this.#readyUrgent.has(connection)) return
    for (let [next] = connection.queue; next !== undefined; [next] = connection.queue) {
      if (!this.#canStartBeside(connection, next.request)) return
      if (!this.#canStartNow()) {
        this.#makeReady(connection, next.request)
        return
      }
      this.#startNext(connection, performance.now())
    }
  }

  #makeReady(connection: Connection, next: IncomingMessage): void {
    connection.since = performance.now()
    const ready = this.#isUrgent(next) ? this.#readyUrgent : this.#ready
    ready.add(connection)
    this.#scheduleIterationEnd()
  }

  #startNext(connection: Connection, since: number): void {
    const next = connection.queue.shift()
    if (next === undefined) return
    this.#statistics.queued--
    if (connection.isPaused && connection.queue.length === 0) this.#resumable.add(connection)
    this.#start(connection, next, since)
  }

  #start(connection: Connection, { request, response }: Queued, since: number): void {
    this.#starts++
    this.#scheduleIterationEnd()
    const slot = new Slot(response, since, this.#refusalOf(connection, request, since), this.#statistics)
    if (connection.closeTimer !== undefined) response.shouldKeepAlive = false
    connection.method = request.method
    connection.inFlight.set(response, slot)
    response.once('close', () => {
      connection.inFlight.delete(response)
      this.#advance(connection)
    })
    this.#handler(request, response)
  }

  #refusalOf(connection: Connection, request: IncomingMessage, since: number): ApiError | undefined {
    if (connection.closeTimer !== undefined) return tooManyQueued
    if (this.#isUrgent(request)) return undefined
    if (this.#statistics.inFlight >= MAX_IN_FLIGHT) return tooManyInFlight
    if (since < performance.now() - MAX_WAIT_MS) return tooBusy
    return undefined
  }

  #scheduleIterationEnd(): void {
    if (this.#isIterationEnding) return
    this.#isIterationEnding = true
    setImmediate(() => this.#endIteration())
  }

  #endIteration(): void {
    this.#isIterationEnding = false
    this.#starts = 0
    // Urgent requests leave half of the starts to the others, so that a flood of them is not served alone.
    this.#startReady(this.#readyUrgent, this.#maxStarts / 2)
    this.#startReady(this.#ready, this.#maxStarts)
    this.#hasNewConnection = false
    // One at a time, as up to 64 kB of pipelined requests are parsed at once for each.
    const [resumable] = this.#resumable
    if (resumable !== undefined) this.#resume(resumable)
    if (this.#starts > 0 || this.#resumable.size > 0) this.#scheduleIterationEnd()
  }

  #startReady(ready: Set<Connection>, maxStarts: number): void {
    for (const connection of ready) {
      if (this.#starts >= maxStarts) return
      ready.delete(connection)
      const [first] = connection.queue
      // Otherwise it goes on when a request that it has in flight ends.
      if (first === undefined || !this.#canStartBeside(connection, first.request)) continue
      this.#startNext(connection, connection.since)
      const [next] = connection.queue
      if (next !== undefined) this.#makeReady(connection, next.request)
    }
  }

  #pause(connection: Connection): void {
    if (connection.isPaused) return
    connection.isPaused = true
    connection.socket.pause()
  }

  #resume(connection: Connection): void {
    this.#resumable.delete(connection)
    connection.isPaused = false
    connection.socket.resume()
  }

  /**
   * Makes room by closing the connection that has most queued: it gets the answer to the request in flight and a 503,
   * and what is queued behind is discarded. It is cut off if it does not take these.
   */
  #closeLongestQueue(): void {
    let longest: Connection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.queue.length > (longest?.queue.length ?? 1)) longest = connection
    }
    if (longest === undefined) return
    const { socket, queue } = longest
    this.#statistics.queued -= queue.length - 1
    longest.queue = queue.slice(0, 1)
    longest.closeTimer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS).unref()
  }
}

const tooBusy = serviceUnavailable('The service is too busy. Try again shortly.')
const tooManyInFlight = serviceUnavailable('Too many requests are under way. Try again shortly.')
const tooManyQueued = serviceUnavailable(
  'Too many requests wait, most of them on this connection. Wait for answers before you send more.',
)
