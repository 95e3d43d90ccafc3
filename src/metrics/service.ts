import type { Database } from '../database/pool.ts'
import { type NotReadyKind, notReadyKinds } from '../database/readiness.ts'
import type { RequestStatistics } from '../http/connections/request-statistics.ts'
import type { InventoryStatistics } from '../inventory/statistics.ts'
import type { StockLevel } from '../inventory/stock-sample.ts'
import { counter, gauge, histogram, type MetricFamily } from './families.ts'

/** What the metrics of a service are read from, at the moment when they are asked for. */
export interface ServiceSources {
  /** Why requests cannot be served now; undefined when they can. */
  readonly notReady: NotReadyKind | undefined
  /** The latest counts of entries; none where another process counts them, or there is no count. */
  readonly stock: readonly StockLevel[]
  readonly requests: RequestStatistics
  readonly inventory: InventoryStatistics
  /** By the names that tell them apart. */
  readonly pools: Readonly<Record<string, Database>>
  /** When the API keys were last read, as `Date.now()` counts. */
  readonly keysReadAt: () => number
  /** When each name's last key ends, as `Date.now()` counts. */
  readonly keyExpirations: () => ReadonlyMap<string, number>
}

/**
 * The metrics of the service itself. They have the names of the OpenTelemetry semantic conventions, as its Prometheus
 * exporters write them, where there are such, and otherwise begin with `inventory_`.
 */
export function serviceMetrics({
  notReady,
  stock,
  requests,
  inventory,
  pools,
  keysReadAt,
  keyExpirations,
}: ServiceSources): readonly MetricFamily[] {
  const { batches, lists, waitingUpdates } = inventory
  const states = Object.entries(pools).map(([name, database]) => ({
    labels: { db_client_connection_pool_name: name },
    ...database.statistics(),
  }))
  return [
    {
      ...gauge('inventory_ready', '1 while requests can be served, as /readyz says, else 0.', [
        { labels: {}, value: notReady === undefined ? 1 : 0 },
      ]),
      aggregator: 'min',
    },
    {
      ...gauge(
        'inventory_not_ready',
        '1 for the reason why requests cannot be served, 0 for every other.',
        notReadyKinds.map((reason) => ({ labels: { reason }, value: reason === notReady ? 1 : 0 })),
      ),
      aggregator: 'max',
    },
    histogram(
      'http_server_request_duration_seconds',
      'Duration of requests by route template, method and status; one that got no answer has no status.',
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
      'Messages that were refused because they are no HTTP or did not arrive whole, by status.',
      Array.from(requests.malformedByStatus, ([status, value]) => ({
        labels: { http_response_status_code: String(status) },
        value,
      })),
    ),
    gauge(
      'inventory_requests_in_flight',
      'Requests that are being served, and those whose client has left and whose work goes on.',
      [{ labels: {}, value: requests.inFlight }],
    ),
    gauge(
      'inventory_requests_queued',
      'Requests that are parsed and not yet started, most of them pipelined behind another.',
      [{ labels: {}, value: requests.queued }],
    ),
    gauge(
      'db_client_connection_count',
      'Connections to PostgreSQL by pool and state.',
      states.flatMap(({ labels, used, idle }) => [
        { labels: { ...labels, db_client_connection_state: 'used' }, value: used },
        { labels: { ...labels, db_client_connection_state: 'idle' }, value: idle },
      ]),
    ),
    gauge(
      'db_client_connection_max',
      'The most connections that a pool opens.',
      states.map(({ labels, size }) => ({ labels, value: size })),
    ),
    gauge(
      'db_client_connection_pending_requests',
      'Callers that wait for a connection.',
      states.map(({ labels, waiting }) => ({ labels, value: waiting })),
    ),
    counter(
      'inventory_database_failures_total',
      'Requests and checks that failed, because PostgreSQL had no connection, no answer in time, or could not serve.',
      states.map(({ labels, failures }) => ({ labels, value: failures })),
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
    gauge('inventory_updates_waiting', 'Updates that wait for their statement.', [
      { labels: {}, value: waitingUpdates },
    ]),
    histogram('inventory_update_batch_size', 'Updates that went out together in one statement.', [
      { labels: {}, value: batches },
    ]),
    counter(
      'inventory_lists_total',
      'Lists by what they cost: read whole, changed entries read, unchanged, or joined to another that waited.',
      Object.entries(lists).map(([result, value]) => ({ labels: { result }, value })),
    ),
    {
      ...gauge(
        'inventory_api_keys_read_timestamp_seconds',
        'When the API keys were last read from the database, in Unix time; 0 before the first time.',
        [{ labels: {}, value: keysReadAt() / 1000 }],
      ),
      aggregator: 'min',
    },
    {
      ...gauge(
        'inventory_api_key_expiry_timestamp_seconds',
        'When the last key of a name ends, in Unix time; keys that do not end are left out.',
        Array.from(keyExpirations(), ([key, endsAt]) => ({ labels: { key }, value: endsAt / 1000 })),
      ),
      aggregator: 'max',
    },
  ]
}
