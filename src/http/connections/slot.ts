import type { ServerResponse } from 'node:http'
import type { FastifyInstance } from 'fastify'
import type { ApiError } from '../../contract/errors.ts'
import type { RequestStatistics } from './request-statistics.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The slot that the request occupies; null before the first hook, and for a request without a connection (`inject`). */
    slot: Slot | null
  }
}

/**
 * A slot among the requests in flight. A request occupies it from its start until its response has closed and all work
 * started for it has settled: started work keeps its slot after the client disconnects.
 */
export class Slot {
  readonly response: ServerResponse
  /** When the request could have started, in `performance.now()` time. */
  readonly readySince: number
  /** Why the request is not served; undefined if it is. */
  readonly refusal: ApiError | undefined
  readonly #statistics: RequestStatistics
  #users = 0

  constructor(
    response: ServerResponse,
    readySince: number,
    refusal: ApiError | undefined,
    statistics: RequestStatistics,
  ) {
    this.response = response
    this.readySince = readySince
    this.refusal = refusal
    this.#statistics = statistics
    this.#acquire()
  }

  /** Gives the slot up for the response, which has closed. Call it once. */
  responseClosed(): void {
    this.#release()
  }

  /** Keeps the slot until the work has settled, and returns the work. */
  keepDuring<T>(work: Promise<T>): Promise<T> {
    this.#acquire()
    const release = (): void => this.#release()
    void work.then(release, release)
    return work
  }

  #acquire(): void {
    if (this.#users++ === 0) this.#statistics.inFlight++
  }

  #release(): void {
    if (--this.#users === 0) this.#statistics.inFlight--
  }
}

/** Makes the handlers of a scope keep the slot of their request until they settle. Call it before routes are added. */
export function keepSlotsInHandlers(scope: FastifyInstance): void {
  scope.addHook('onRoute', (route) => {
    const { handler } = route
    route.handler = function (request, reply) {
      const result: unknown = handler.call(this, request, reply)
      // An injected request has no slot.
      return result instanceof Promise ? (request.slot?.keepDuring(result) ?? result) : result
    }
  })
}
