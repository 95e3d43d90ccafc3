import { Gauge, type Registry } from 'prom-client'
import { type NotReadyKind, notReadyReasons } from '../database/causes.ts'
import type { Pool } from '../database/pool.ts'
import type { StockLevel } from '../inventory/reports/stock-levels.ts'

/** What the metrics of the service are read from at each scrape. */
export interface ServiceSources {
  readonly notReadyKind: () => Promise<NotReadyKind | undefined>
  /** Empty if the count failed. */
  readonly stock: () => Promise<readonly StockLevel[]>
  readonly lastBackup: () => Promise<Date | undefined>
  readonly pools: Readonly<Record<string, Pool>>
  /** When the cached API keys were last refreshed, in milliseconds since 1970; at first 0. */
  readonly keysReadAt: () => number
  /** Until when, in Unix time, each name has a valid key that expires; undefined if they cannot be read. */
  readonly endsOfKeys: () => Promise<readonly { name: string; end: number }[] | undefined>
}

/** A value for each combination of labels. */
type Samples = Iterable<readonly [labels: Record<string, string>, value: number]>

/**
 * Creates the metrics of the service. Those of the OpenTelemetry semantic conventions are named as its Prometheus exporters write
 * them; all others begin with `inventory_`.
 */
export function serviceMetrics(register: Registry, sources: ServiceSources) {
  const { pools } = sources
  let kind: NotReadyKind | undefined
  let levels: readonly StockLevel[] = []
  let backup: Date | undefined
  let ends: readonly { name: string; end: number }[] = []

  const gauge = (name: string, help: string, read: () => Samples, ...labelNames: string[]): void => {
    const collect = (): void => {
      metric.reset()
      // Without labels, `reset` sets it to 0.
      if (labelNames.length === 0) metric.remove()
      for (const [labels, value] of read()) metric.set(labels, value)
    }
    const metric = new Gauge({ name, help, labelNames, registers: [register], collect })
  }
  const one = (value: number | undefined): Samples => (value === undefined ? [] : [[{}, value]])
  const perPool = function* (read: (pool: ReturnType<Pool['statistics']>) => number): Samples {
    for (const [name, pool] of Object.entries(pools))
      yield [{ db_client_connection_pool_name: name }, read(pool.statistics())]
  }

  gauge('inventory_ready', '1 if the service can serve requests, as /readyz says, otherwise 0.', () =>
    one(kind === undefined ? 1 : 0),
  )
  gauge(
    'inventory_not_ready',
    '1 for the reason why the service cannot serve requests, 0 for all other reasons.',
    () => Object.keys(notReadyReasons).map((reason) => [{ reason }, reason === kind ? 1 : 0]),
    'reason',
  )
  gauge(
    'inventory_entries',
    'Entries of the inventory by status, counted at most once a minute.',
    () => levels.map(({ status, entries }) => [{ status }, entries]),
    'status',
  )
  gauge(
    'inventory_entries_out_of_stock',
    'Entries of the inventory with a quantity of 0 by status, counted at most once a minute.',
    () => levels.map(({ status, outOfStock }) => [{ status }, outOfStock]),
    'status',
  )
  gauge('inventory_backup_timestamp_seconds', 'When the last recorded backup was made, in Unix time.', () =>
    one(backup && backup.getTime() / 1000),
  )
  gauge(
    'db_client_connection_count',
    'Connections to PostgreSQL by pool and state.',
    function* () {
      for (const state of ['used', 'idle'] as const)
        for (const [labels, value] of perPool((pool) => pool[state]))
          yield [{ ...labels, db_client_connection_state: state }, value]
    },
    'db_client_connection_pool_name',
    'db_client_connection_state',
  )
  gauge(
    'db_client_connection_max',
    'Maximum connections of a pool.',
    () => perPool(({ size }) => size),
    'db_client_connection_pool_name',
  )
  gauge(
    'db_client_connection_pending_requests',
    'Callers waiting for a connection.',
    () => perPool(({ waiting }) => waiting),
    'db_client_connection_pool_name',
  )
  gauge(
    'inventory_api_keys_read_timestamp_seconds',
    'When the API keys in use were last read from the database, in Unix time; 0 before the first read.',
    () => one(sources.keysReadAt() / 1000),
  )
  gauge(
    'inventory_api_key_expiry_timestamp_seconds',
    'When the last key of a name expires, in Unix time; names with a key that never expires are omitted.',
    () => ends.map(({ name, end }) => [{ key: name }, end]),
    'key',
  )

  return {
    register,
    /** Returns the metrics in Prometheus's text format. */
    async scrape() {
      // Not in `collect`: the statements of a scrape must not count among the callers that wait for a connection.
      const { notReadyKind, stock, lastBackup, endsOfKeys } = sources
      const found = await Promise.all([notReadyKind(), stock(), lastBackup(), endsOfKeys()])
      // While the keys cannot be read, those of the last time remain valid.
      ;[kind, levels, backup, ends = ends] = found
      return register.metrics()
    },
  }
}
