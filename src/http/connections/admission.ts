import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate } from 'node:timers'
import { removeItem } from '../../collections/remove-item.ts'
import { type ApiError, serviceUnavailable } from '../../contract/errors.ts'
import { Pipeline, type QueuedRequest } from './pipeline.ts'
import type { RequestStatistics } from './request-statistics.ts'
import { Slot } from './slot.ts'
import { StartRate } from './start-rate.ts'

/**
 * Maximum requests started in one event-loop iteration, and in one that accepted a connection. Node accepts one
 * connection in each iteration, so long iterations make new clients wait.
 */
const MAX_STARTS = 64
const MAX_STARTS_WITH_NEW_CONNECTION = 4

/** How long the oldest queued request of a connection may wait to start. */
const MAX_WAIT_MS = 1000

/** Maximum requests in flight, which bounds the memory and the database work that they cost. */
const MAX_IN_FLIGHT = 10_000

/** Maximum memory of the queued requests of all connections. About 20,000 requests with few headers. */
const MAX_QUEUED_BYTES = 64 * 1024 * 1024

export interface AdmissionOptions {
  /** Called with each request when it starts. */
  readonly handler: RequestListener
  /** Whether a request takes precedence over other kinds, as health checks do. */
  readonly isUrgent: (request: IncomingMessage) => boolean
  /** Counts the requests in flight and the queued ones. */
  readonly statistics: RequestStatistics
}

/**
 * Starts the requests of an HTTP server so that no connection starves the others. Node parses everything that it reads, up
 * to 64 kB of pipelined requests at a time, and emits all of these requests at once. Here each connection queues its
 * requests, and the connections are served round-robin, with a bounded number of starts in each event-loop iteration.
 */
export class Admission {
  readonly #handler: RequestListener
  readonly #isUrgent: (request: IncomingMessage) => boolean
  readonly #statistics: RequestStatistics
  readonly #pipelines = new Map<Socket, Pipeline>()
  /** Connections whose oldest queued request can start, longest waiting first. */
  readonly #ready = new Set<Pipeline>()
  readonly #readyUrgent = new Set<Pipeline>()
  /** Paused connections whose queue is empty again. */
  readonly #resumable = new Set<Pipeline>()
  #queuedBytes = 0
  /** Requests started in this event-loop iteration; a few of earlier ones may be among them. */
  #starts = 0
  readonly #startRate = new StartRate()
  #isIterationEndScheduled = false
  #hasNewConnection = false

  constructor({ handler, isUrgent, statistics }: AdmissionOptions) {
    this.#handler = handler
    this.#isUrgent = isUrgent
    this.#statistics = statistics
  }

  /** Schedules all requests of the server. Call it once, before the server listens. */
  schedule(server: Server): void {
    server.on('connection', () => {
      this.#hasNewConnection = true
    })
    server.on('request', (request, response) => this.#add({ request, response }))
  }

  /** The slot of a request in flight. */
  slotOf(response: ServerResponse): Slot | undefined {
    return this.#pipelines.get(response.req.socket)?.inFlight.find((slot) => slot.response === response)
  }

  #add(queued: QueuedRequest): void {
    const pipeline = this.#pipelineOf(queued.request.socket)
    // The connection will be closed before this request could be answered.
    if (pipeline.isClosing) return
    if (pipeline.queued === 0 && this.#canStart(pipeline, queued.request) && this.#hasCapacity()) {
      this.#start(pipeline, queued, performance.now())
      return
    }
    this.#changeQueue(pipeline, () => pipeline.enqueue(queued))
    if (pipeline.queued === 1) this.#advance(pipeline)
    if (this.#queuedBytes > MAX_QUEUED_BYTES) this.#closeLargestQueue()
  }

  /** Changes the queue of a connection, and with it the totals of all connections. */
  #changeQueue<Result>(pipeline: Pipeline, change: () => Result): Result {
    const { queued, queuedBytes } = pipeline
    const result = change()
    this.#statistics.queued += pipeline.queued - queued
    this.#queuedBytes += pipeline.queuedBytes - queuedBytes
    return result
  }

  #pipelineOf(socket: Socket): Pipeline {
    const existing = this.#pipelines.get(socket)
    if (existing !== undefined) return existing
    const pipeline = new Pipeline(socket)
    this.#pipelines.set(socket, pipeline)
    socket.once('close', () => {
      this.#pipelines.delete(socket)
      this.#discardQueue(pipeline)
      pipeline.dispose()
    })
    return pipeline
  }

  #discardQueue(pipeline: Pipeline): void {
    this.#changeQueue(pipeline, () => pipeline.discardQueue())
    this.#ready.delete(pipeline)
    this.#readyUrgent.delete(pipeline)
    this.#resumable.delete(pipeline)
  }

  /** Whether a request may start without waiting for other connections. */
  #hasCapacity(): boolean {
    return this.#ready.size === 0 && this.#readyUrgent.size === 0 && this.#starts < this.#maxStarts
  }

  #canStart(pipeline: Pipeline, request: IncomingMessage): boolean {
    return pipeline.canStart(request, this.#statistics.inFlight)
  }

  get #maxStarts(): number {
    return this.#hasNewConnection ? MAX_STARTS_WITH_NEW_CONNECTION : MAX_STARTS
  }

  /** Starts the queued requests of a connection that can start now, and adds it to the round-robin for the others. */
  #advance(pipeline: Pipeline): void {
    // Node sends nothing more on a connection that is being closed.
    if (!pipeline.socket.writable) this.#discardQueue(pipeline)
    if (this.#ready.has(pipeline) || this.#readyUrgent.has(pipeline)) return
    for (let next = pipeline.oldestQueued; next !== undefined; next = pipeline.oldestQueued) {
      if (!this.#canStart(pipeline, next.request)) return
      if (!this.#hasCapacity()) {
        this.#makeReady(pipeline, next.request)
        return
      }
      this.#startNext(pipeline, performance.now())
    }
  }

  #makeReady(pipeline: Pipeline, next: IncomingMessage): void {
    pipeline.readySince = performance.now()
    if (this.#ready.size === 0) this.#startRate.reset(pipeline.readySince)
    const ready = this.#isUrgent(next) ? this.#readyUrgent : this.#ready
    ready.add(pipeline)
    this.#scheduleIterationEnd()
  }

  #startNext(pipeline: Pipeline, readySince: number): void {
    const next = this.#changeQueue(pipeline, () => pipeline.dequeue())
    if (next === undefined) return
    if (pipeline.isPaused && pipeline.queued === 0) this.#resumable.add(pipeline)
    this.#start(pipeline, next, readySince)
  }

  #start(pipeline: Pipeline, queued: QueuedRequest, readySince: number): void {
    this.#starts++
    this.#startRate.add()
    // For a single caller, finding the end of every iteration would cost more than these few starts matter.
    if (this.#starts >= MAX_STARTS_WITH_NEW_CONNECTION || this.#hasNewConnection) this.#scheduleIterationEnd()
    const { request, response } = queued
    const refusal = this.#refusalOf(pipeline, request, readySince)
    const slot = new Slot(response, readySince, refusal, this.#statistics)
    if (pipeline.isClosing) response.shouldKeepAlive = false
    pipeline.addInFlight(slot)
    response.once('close', () => {
      slot.responseClosed()
      removeItem(pipeline.inFlight, slot)
      this.#advance(pipeline)
    })
    this.#handler(request, response)
  }

  #refusalOf(pipeline: Pipeline, request: IncomingMessage, readySince: number): ApiError | undefined {
    if (pipeline.isClosing) return tooManyQueued
    if (this.#isUrgent(request)) return undefined
    if (this.#statistics.inFlight >= MAX_IN_FLIGHT) return tooManyInFlight
    if (readySince < performance.now() - MAX_WAIT_MS) return tooBusy
    return undefined
  }

  #scheduleIterationEnd(): void {
    if (this.#isIterationEndScheduled) return
    this.#isIterationEndScheduled = true
    setImmediate(() => this.#endIteration())
  }

  #endIteration(): void {
    this.#isIterationEndScheduled = false
    this.#starts = 0
    // Urgent requests get half of the starts at most, so that a flood of them does not starve the others.
    this.#startReady(this.#readyUrgent, this.#maxStarts / 2)
    if (this.#isOverloaded) {
      // Refusing a request takes about as long as serving it. So in order of arrival, each would start too late to be served.
      // On a machine so busy that an iteration takes longer than a request may wait, so would the newest behind the oldest.
      this.#startReady(this.#ready, (this.#starts + this.#maxStarts) / 2, [...this.#ready].reverse())
      this.#startReady(this.#ready, this.#maxStarts)
    } else {
      this.#startReady(this.#ready, this.#maxStarts)
    }
    this.#hasNewConnection = false
    // One in each iteration, because resuming parses up to 64 kB of pipelined requests at once.
    const [resumable] = this.#resumable
    if (resumable !== undefined) {
      this.#resumable.delete(resumable)
      resumable.resume()
    }
    if (this.#starts > 0 || this.#resumable.size > 0) this.#scheduleIterationEnd()
  }

  /** Whether the oldest of the waiting requests has waited too long, and the newest would, too, if they started in order. */
  get #isOverloaded(): boolean {
    const now = performance.now()
    const [oldest] = this.#ready
    return (
      this.#ready.size > MAX_WAIT_MS * this.#startRate.perMs(now) &&
      oldest !== undefined &&
      oldest.readySince < now - MAX_WAIT_MS
    )
  }

  #startReady(ready: Set<Pipeline>, maxStarts: number, order: Iterable<Pipeline> = ready): void {
    for (const pipeline of order) {
      if (this.#starts >= maxStarts) return
      ready.delete(pipeline)
      const oldest = pipeline.oldestQueued
      // If it cannot start, `#advance` starts it when a request in flight on its connection ends.
      if (oldest === undefined || !this.#canStart(pipeline, oldest.request)) continue
      this.#startNext(pipeline, pipeline.readySince)
      const next = pipeline.oldestQueued
      if (next !== undefined) this.#makeReady(pipeline, next.request)
    }
  }

  /** Frees memory by closing the connection whose queue takes the most; its oldest queued request is answered with 503. */
  #closeLargestQueue(): void {
    let largest: Pipeline | undefined
    for (const pipeline of this.#pipelines.values()) {
      if (pipeline.queued > 1 && pipeline.queuedBytes > (largest?.queuedBytes ?? 0)) largest = pipeline
    }
    if (largest === undefined) return
    const closing = largest
    this.#changeQueue(closing, () => closing.closeAfterOldestQueued())
  }
}

const tooBusy = serviceUnavailable('overloaded', 'The service is too busy. Try again shortly.')
const tooManyInFlight = serviceUnavailable(
  'overloaded',
  'Too many requests are in flight. Try again shortly.',
)
const tooManyQueued = serviceUnavailable(
  'overloaded',
  'Too many requests are queued, most of them on this connection. Wait for responses before sending more.',
)
