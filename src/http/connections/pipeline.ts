import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { clearTimeout, setTimeout } from 'node:timers'
import type { Slot } from './slot.ts'

/** Maximum requests of one connection in flight. They go to PostgreSQL in one batch. */
const MAX_IN_FLIGHT_PER_CONNECTION = 32

/** Maximum requests of all connections in flight before each connection is limited to one. */
const MAX_PIPELINED_IN_FLIGHT = 256

/** A connection whose queued requests take more memory than this is not read. About 16 requests. */
const PAUSE_ABOVE_BYTES = 48 * 1024

/** Approximate memory of a queued request without its headers, and of a header without its name and value. */
const REQUEST_BYTES = 3000
const HEADER_BYTES = 100

/** How long a connection that is being closed may take to finish the request that it has in flight. */
const CLOSE_TIMEOUT_MS = 1000

/** A parsed request that has not started. */
export interface QueuedRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** Returns approximately how much memory a queued request takes, in bytes. */
function memoryOf({ request: { url = '', rawHeaders } }: QueuedRequest): number {
  const text = rawHeaders.reduce((sum, { length }) => sum + length, url.length)
  return REQUEST_BYTES + text + (rawHeaders.length / 2) * HEADER_BYTES
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
  #queuedBytes = 0
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

  /** Approximate memory of the queued requests. */
  get queuedBytes(): number {
    return this.#queuedBytes
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
    this.#queuedBytes += memoryOf(queued)
    if (this.#queuedBytes <= PAUSE_ABOVE_BYTES || this.#isPaused) return
    this.#isPaused = true
    this.socket.pause()
  }

  dequeue(): QueuedRequest | undefined {
    const oldest = this.#queue.shift()
    if (oldest !== undefined) this.#queuedBytes -= memoryOf(oldest)
    return oldest
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
    const [oldest] = this.#queue
    this.#queue = oldest === undefined ? [] : [oldest]
    this.#queuedBytes = oldest === undefined ? 0 : memoryOf(oldest)
    this.#closeTimer = setTimeout(() => this.socket.destroy(), CLOSE_TIMEOUT_MS).unref()
  }

  discardQueue(): void {
    this.#queue = []
    this.#queuedBytes = 0
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
