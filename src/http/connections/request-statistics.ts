import { Histogram } from '../../statistics/histogram.ts'

/** Bucket bounds that the OpenTelemetry semantic conventions advise for `http.server.request.duration`. */
const DURATION_BOUNDS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]

/** Methods with a series of their own; all others count as `_OTHER` (semantic conventions, `http.request.method`). */
const namedMethods = new Set([
  'CONNECT',
  'DELETE',
  'GET',
  'HEAD',
  'OPTIONS',
  'PATCH',
  'POST',
  'PUT',
  'QUERY',
  'TRACE',
])

/** Completed requests with the same route, method and status. */
export interface RequestDurations {
  /** The route template; undefined if no route matched. */
  readonly route: string | undefined
  readonly method: string
  /** The status of the response; undefined if none was sent. */
  readonly status: number | undefined
  /** Seconds from when the request could start until its response has closed. */
  readonly durations: Histogram
}

/**
 * Counts requests and their durations since the start of the process. Labels are bounded by the routes, the named methods
 * and the statuses, whatever paths and methods clients send.
 */
export class RequestStatistics {
  /** Requests in flight, including those whose client has disconnected while their work goes on. */
  inFlight = 0
  /** Parsed requests that have not started, most of them pipelined behind another request. */
  queued = 0
  readonly #durations = new Map<string | undefined, Map<string, Map<number | undefined, RequestDurations>>>()
  readonly #malformedByStatus = new Map<number, number>()

  /** Records a completed request. */
  recordCompleted(
    route: string | undefined,
    method: string,
    status: number | undefined,
    durationSeconds: number,
  ): void {
    const existing = this.#durations.get(route)?.get(method)?.get(status)
    if (existing !== undefined) existing.durations.observe(durationSeconds)
    else
      this.#add(route, namedMethods.has(method) ? method : '_OTHER', status).durations.observe(
        durationSeconds,
      )
  }

  /** Records a malformed or incomplete request, which was refused with a status. */
  recordMalformed(status: number): void {
    this.#malformedByStatus.set(status, (this.#malformedByStatus.get(status) ?? 0) + 1)
  }

  /** Durations of the completed requests, by route, method and status. */
  get durations(): readonly RequestDurations[] {
    return [...this.#durations.values()].flatMap((methods) =>
      [...methods.values()].flatMap((statuses) => [...statuses.values()]),
    )
  }

  /** Number of malformed or incomplete requests, by status. */
  get malformedByStatus(): ReadonlyMap<number, number> {
    return this.#malformedByStatus
  }

  #add(route: string | undefined, method: string, status: number | undefined): RequestDurations {
    const methods = this.#durations.get(route) ?? new Map<string, Map<number | undefined, RequestDurations>>()
    this.#durations.set(route, methods)
    const statuses = methods.get(method) ?? new Map<number | undefined, RequestDurations>()
    methods.set(method, statuses)
    const requests = statuses.get(status) ?? {
      route,
      method,
      status,
      durations: new Histogram(DURATION_BOUNDS_SECONDS),
    }
    statuses.set(status, requests)
    return requests
  }
}
