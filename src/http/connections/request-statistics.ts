import { Histogram } from '../../contract/histogram.ts'

/** In seconds, as the OpenTelemetry semantic conventions advise for `http.server.request.duration`. */
const DURATION_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]

/** The methods of RFC 9110, PATCH and QUERY; all others together are `_OTHER` (the conventions' `http.request.method`). */
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

/** The requests of one kind that have ended. */
export interface RequestDurations {
  /** The template of the route; undefined where the path has none. */
  readonly route: string | undefined
  readonly method: string
  /** The status of the response; undefined where the caller got none. */
  readonly status: number | undefined
  /** In seconds, from the arrival of the head to the end of the response. */
  readonly durations: Histogram
}

/**
 * The requests since the start. However many paths and methods callers make up, the kinds are no more than the routes,
 * the named methods and the statuses allow.
 */
export class RequestStatistics {
  /** Requests that were started and have not ended, and those whose client has left and whose work has not. */
  inFlight = 0
  /** Requests that are parsed and wait to be started, most of them behind another one of their connection. */
  queued = 0
  readonly #kinds = new Map<string | undefined, Map<string, Map<number | undefined, RequestDurations>>>()
  readonly #malformed = new Map<number, number>()

  /** Counts a request that has ended; the duration is in seconds. */
  ended(route: string | undefined, method: string, status: number | undefined, duration: number): void {
    const kind = this.#kinds.get(route)?.get(method)?.get(status)
    if (kind !== undefined) kind.durations.observe(duration)
    else this.#add(route, namedMethods.has(method) ? method : '_OTHER', status).durations.observe(duration)
  }

  /** Counts a message that was refused with a status because it is no HTTP, or not a whole request. */
  refused(status: number): void {
    this.#malformed.set(status, (this.#malformed.get(status) ?? 0) + 1)
  }

  /** Every kind of request that there was. */
  get kinds(): readonly RequestDurations[] {
    return [...this.#kinds.values()].flatMap((methods) =>
      [...methods.values()].flatMap((statuses) => [...statuses.values()]),
    )
  }

  /** How many messages were refused, by status. */
  get malformed(): ReadonlyMap<number, number> {
    return this.#malformed
  }

  #add(route: string | undefined, method: string, status: number | undefined): RequestDurations {
    const methods = this.#kinds.get(route) ?? new Map<string, Map<number | undefined, RequestDurations>>()
    this.#kinds.set(route, methods)
    const statuses = methods.get(method) ?? new Map<number | undefined, RequestDurations>()
    methods.set(method, statuses)
    const kind = statuses.get(status) ?? { route, method, status, durations: new Histogram(DURATION_BOUNDS) }
    statuses.set(status, kind)
    return kind
  }
}
