import type { KeyLifetime } from '../api-keys/cache.ts'
import type { Database } from '../database/pool.ts'
import { type NotReadyKind, notReadyKinds } from '../database/readiness.ts'
import type { RequestStatistics } from '../http/connections/request-statistics.ts'
import type { InventoryStatistics, StandbyStatistics } from '../inventory/statistics.ts'
import type { StockLevel } from '../inventory/stock-sample.ts'
import { counter, gauge, histogram, type MetricFamily } from './families.ts'

/** What the metrics of the service are made from at each scrape. */
export interface ServiceSources {
  /** Why requests cannot be served; undefined if they can. */
  readonly notReady: NotReadyKind | undefined
  /** The latest counts of entries; empty if the count failed. */
  readonly stock: readonly StockLevel[]
  readonly requests: RequestStatistics
  readonly inventory: InventoryStatistics
  /** Connection pools by name. */
  readonly pools: Readonly<Record<string, Database>>
  /** When the API keys were last read, in `Date.now()` time. */
  readonly keysReadAt: number
  /** The lifetime of the key of each name that expires last. */
  readonly keyLifetimes: ReadonlyMap<string, KeyLifetime>
}

/**
 * Collects the metrics of the service. Metrics that the OpenTelemetry semantic conventions define have those names, as
 * OpenTelemetry's Prometheus exporters write them; all others begin with `inventory_`.
 */
export function serviceMetrics({
  notReady,
  stock,
  requests,
  inventory,
  pools,
  keysReadAt,
  keyLifetimes,
}: ServiceSources): readonly MetricFamily[] {
  const { batches, lists, standby, waitingUpdates } = inventory
  const poolStates = Object.entries(pools).map(([name, database]) => ({
    labels: { db_client_connection_pool_name: name },
    ...database.statistics(),
  }))
  return [
    {
      ...gauge('inventory_ready', '1 if the service can serve requests, as /readyz says, otherwise 0.', [
        { labels: {}, value: notReady === undefined ? 1 : 0 },
      ]),
      aggregator: 'min',
    },
    {
      ...gauge(
        'inventory_not_ready',
        '1 for the reason why the service cannot serve requests, 0 for all other reasons.',
        notReadyKinds.map((reason) => ({ labels: { reason }, value: reason === notReady ? 1 : 0 })),
      ),
      aggregator: 'max',
    },
    histogram(
      'http_server_request_duration_seconds',
      'Duration of requests by route template, method and status; the status is empty if no response was sent.',
      requests.durations.map(({ route = '', method, status = '', durations }) => ({
        labels: {
          http_route: route,
          http_request_method: method,
          http_response_status_code: String(status),
        },
        value: durations,
      })),
    ),
    counter(
      'inventory_http_malformed_requests_total',
      'Malformed or incomplete requests, and CONNECT, by status.',
      Array.from(requests.malformedByStatus, ([status, value]) => ({
        labels: { http_response_status_code: String(status) },
        value,
      })),
    ),
    gauge(
      'inventory_requests_in_flight',
      'Requests in flight, including those whose client has disconnected while their work goes on.',
      [{ labels: {}, value: requests.inFlight }],
    ),
    gauge(
      'inventory_requests_queued',
      'Parsed requests that have not started, most of them pipelined behind another request.',
      [{ labels: {}, value: requests.queued }],
    ),
    gauge(
      'db_client_connection_count',
      'Connections to PostgreSQL by pool and state.',
      poolStates.flatMap(({ labels, used, idle }) => [
        { labels: { ...labels, db_client_connection_state: 'used' }, value: used },
        { labels: { ...labels, db_client_connection_state: 'idle' }, value: idle },
      ]),
    ),
    gauge(
      'db_client_connection_max',
      'Maximum connections of a pool.',
      poolStates.map(({ labels, size }) => ({ labels, value: size })),
    ),
    gauge(
      'db_client_connection_pending_requests',
      'Callers waiting for a connection.',
      poolStates.map(({ labels, waiting }) => ({ labels, value: waiting })),
    ),
    counter(
      'inventory_database_failures_total',
      'Requests and checks that failed because PostgreSQL was unreachable, too slow or unable to serve them.',
      poolStates.map(({ labels, failures }) => ({ labels, value: failures })),
    ),
    {
      ...gauge(
        'inventory_entries',
        'Entries of the inventory by status, counted at most once a minute.',
        stock.map(({ status, entries }) => ({ labels: { status }, value: entries })),
      ),
      aggregator: 'max',
    },
    {
      ...gauge(
        'inventory_entries_out_of_stock',
        'Entries of the inventory with a quantity of 0 by status, counted at most once a minute.',
        stock.map(({ status, outOfStock }) => ({ labels: { status }, value: outOfStock })),
      ),
      aggregator: 'max',
    },
    gauge('inventory_updates_waiting', 'Updates waiting to be sent to PostgreSQL.', [
      { labels: {}, value: waitingUpdates },
    ]),
    histogram('inventory_update_batch_size', 'Updates in one batch, which is one statement.', [
      { labels: {}, value: batches },
    ]),
    counter(
      'inventory_lists_total',
      'Lists by what was read: all entries (read), the changed ones (changed), none (unchanged), or coalesced with another read (joined).',
      Object.entries(lists).map(([result, value]) => ({ labels: { result }, value })),
    ),
    ...(standby === undefined ? [] : standbyMetrics(standby)),
    {
      ...gauge(
        'inventory_api_keys_read_timestamp_seconds',
        'When the API keys were last read from the database, in Unix time; 0 before the first read.',
        [{ labels: {}, value: keysReadAt / 1000 }],
      ),
      aggregator: 'min',
    },
    {
      ...gauge(
        'inventory_api_key_expiry_timestamp_seconds',
        'When the last key of a name expires, in Unix time; names with a key that never expires are omitted.',
        Array.from(keyLifetimes, ([key, { validUntil }]) => ({
          labels: { key },
          value: validUntil / 1000,
        })),
      ),
      aggregator: 'max',
    },
    {
      ...gauge(
        'inventory_api_key_created_timestamp_seconds',
        'When the key that expires last was created, in Unix time; names with a key that never expires are omitted.',
        Array.from(keyLifetimes, ([key, { createdAt }]) => ({ labels: { key }, value: createdAt / 1000 })),
      ),
      aggregator: 'max',
    },
  ]
}

function standbyMetrics({ isInUse, outcomes }: StandbyStatistics): MetricFamily[] {
  return [
    {
      ...gauge('inventory_standby_in_use', '1 while lists are read from the standby, else 0.', [
        { labels: {}, value: isInUse ? 1 : 0 },
      ]),
      aggregator: 'min',
    },
    counter(
      'inventory_standby_reads_total',
      'Lists that were to be read from the standby: served by it, or why the primary was read instead.',
      Object.entries(outcomes).map(([result, value]) => ({ labels: { result }, value })),
    ),
  ]
}
