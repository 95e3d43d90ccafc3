import { Counter, Gauge, Histogram, type Registry } from 'prom-client'

/**
 * Metrics of requests, lists and updates, which the HTTP server, the list and the update queue count. Those named `http_` follow the
 * OpenTelemetry semantic conventions.
 */
export type RequestMetrics = ReturnType<typeof requestMetrics>

/** Registers the metrics of requests. */
export function requestMetrics(register: Registry) {
  const registers = [register]
  return {
    /** Requests that have started, until their response has closed. */
    inFlight: new Gauge({ name: 'inventory_requests_in_flight', help: 'Requests in flight.', registers }),
    /** Seconds from the start of a request until its response has closed. */
    durations: new Histogram({
      name: 'http_server_request_duration_seconds',
      help: 'Duration of requests by route template, method and status; the status is empty if no response was sent.',
      labelNames: ['http_route', 'http_request_method', 'http_response_status_code'],
      // Advised by the OpenTelemetry semantic conventions for `http.server.request.duration`.
      buckets: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
      registers,
    }),
    malformed: new Counter({
      name: 'inventory_http_malformed_requests_total',
      help: 'Malformed or incomplete requests, by status.',
      labelNames: ['http_response_status_code'],
      registers,
    }),
    unavailable: new Counter({
      name: 'inventory_unavailable_total',
      help: 'Responses with 503, by cause.',
      labelNames: ['cause'],
      registers,
    }),
    lists: new Counter({
      name: 'inventory_lists_total',
      help: 'Lists by what was read: all entries (read), the changed ones (changed), none (unchanged), or coalesced with another read (joined).',
      labelNames: ['result'],
      registers,
    }),
    waitingUpdates: new Gauge({
      name: 'inventory_updates_waiting',
      help: 'Updates waiting to be sent to PostgreSQL.',
      registers,
    }),
    batches: new Histogram({
      name: 'inventory_update_batch_size',
      help: 'Updates in one batch, which is one statement.',
      buckets: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000],
      registers,
    }),
  }
}
