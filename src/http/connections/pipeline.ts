import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { clearTimeout, setTimeout } from 'node:timers'
import type { Slot } from './slot.ts'

/** Maximum requests of one connection in flight. They go to PostgreSQL in one batch. */
const MAX_IN_FLIGHT_PER_CONNECTION = 32

/** Maximum requests of all connections in flight before each connection is limited to one. */
const MAX_PIPELINED_IN_FLIGHT = 256

/** A connection with more queued requests than this is not read. */
const PAUSE_ABOVE_QUEUED = 16

/** How long a connection that is being closed may take to finish the request that it has in flight. */
const CLOSE_TIMEOUT_MS = 1000

/** A parsed request that has not started. */
export interface QueuedRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/**
 * The requests of one connection. Pipelined requests of one method run concurrently, within bounds. A request of another
 * method waits until all requests before it are answered, so that a list includes the updates that were sent before it
 * and none that were sent after it (RFC 9112, section 9.3.2).
 */
export class Pipeline {
  readonly socket: Socket
  /** The slots of the requests in flight. All have the same method. */
  readonly inFlight: Slot[] = []
  /** When the oldest queued request became ready to start, in `performance.now()` time. */
  readySince = 0
  /** Queued requests, oldest first. */
  #queue: QueuedRequest[] = []
  /** The method of the latest started request. */
  #method: string | undefined
  #isPaused = false
  /** Set once the connection is being closed because too many requests are queued. */
  #closeTimer: NodeJS.Timeout | undefined

  constructor(socket: Socket) {
    this.socket = socket
    // Node resumes the socket whenever a message or its body ends.
    socket.on('resume', () => {
      if (this.#isPaused) socket.pause()
    })
  }

  get queued(): number {
    return this.#queue.length
  }

  get oldestQueued(): QueuedRequest | undefined {
    return this.#queue[0]
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Whether the connection is being closed, so that no further requests are accepted. */
  get isClosing(): boolean {
    return this.#closeTimer !== undefined
  }

  /** Queues a request. A connection with a long queue is not read until `resume`. */
  enqueue(queued: QueuedRequest): void {
    this.#queue.push(queued)
    if (this.#queue.length <= PAUSE_ABOVE_QUEUED || this.#isPaused) return
    this.#isPaused = true
    this.socket.pause()
  }

  dequeue(): QueuedRequest | undefined {
    return this.#queue.shift()
  }

  /** Whether the rules of pipelining let a request start now. `inFlight` counts the requests of all connections. */
  canStart(request: IncomingMessage, inFlight: number): boolean {
    if (this.inFlight.length === 0) return true
    return (
      request.method === this.#method &&
      this.inFlight.length < MAX_IN_FLIGHT_PER_CONNECTION &&
      inFlight < MAX_PIPELINED_IN_FLIGHT
    )
  }

  /** Records a started request. */
  addInFlight(slot: Slot): void {
    this.#method = slot.response.req.method
    this.inFlight.push(slot)
  }

  resume(): void {
    this.#isPaused = false
    this.socket.resume()
  }

  /**
   * Closes the connection after the responses to the requests in flight and to the oldest queued one, and discards the
   * other queued requests. Destroys it if the client does not read these responses in time.
   */
  closeAfterOldestQueued(): void {
    this.#queue = this.#queue.slice(0, 1)
    this.#closeTimer = setTimeout(() => this.socket.destroy(), CLOSE_TIMEOUT_MS).unref()
  }

  discardQueue(): void {
    this.#queue = []
  }

  /** Frees what belongs to the connection, which has closed. */
  dispose(): void {
    clearTimeout(this.#closeTimer)
    // Node emits `close` only on the response that is being sent, and not on the pipelined ones behind it. The copy is needed
    // because each `close` removes a slot.
    for (const { response } of [...this.inFlight]) {
      if (response.socket === null) response.emit('close')
    }
  }
}
