import { Counter, Histogram } from 'prom-client'

/** Methods with a series of their own; all others count as `_OTHER` (semantic conventions, `http.request.method`). */
const NAMED_METHOD = /^(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT|QUERY|TRACE)$/

/** Counts requests and their durations. */
export class RequestStatistics {
  /** Requests that have started, until their response has closed. */
  inFlight = 0
  /** Seconds from the head of a request until its response has closed. */
  readonly durations = new Histogram({
    name: 'http_server_request_duration_seconds',
    help: 'Duration of requests by route template, method and status; the status is empty if no response was sent.',
    labelNames: ['http_route', 'http_request_method', 'http_response_status_code'],
    // Advised by the OpenTelemetry semantic conventions for `http.server.request.duration`.
    buckets: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
    registers: [],
  })
  readonly malformed = new Counter({
    name: 'inventory_http_malformed_requests_total',
    help: 'Malformed or incomplete requests, by status.',
    labelNames: ['http_response_status_code'],
    registers: [],
  })
  readonly unavailable = new Counter({
    name: 'inventory_unavailable_total',
    help: 'Responses with 503, by cause.',
    labelNames: ['cause'],
    registers: [],
  })
}

/** Returns the label of a method, which is bounded, whatever clients send. */
export function methodLabel(method: string): string {
  return NAMED_METHOD.test(method) ? method : '_OTHER'
}
