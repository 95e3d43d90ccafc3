import { Counter, Gauge, Registry } from 'prom-client'
import type { ApiKeyCache } from '../api-keys/cache.ts'
import type { Database } from '../database/database.ts'
import { type NotReadyKind, notReadyKinds } from '../database/readiness.ts'
import type { RequestStatistics } from '../http/request-statistics.ts'
import type { HistorySize } from '../inventory/history/retention.ts'
import type { StockLevel } from '../inventory/reports/stock-levels.ts'
import type { InventoryStatistics } from '../inventory/statistics.ts'

/** What the metrics of the service are read from at each scrape. */
export interface ServiceSources {
  /** Returns why requests cannot be served; undefined if they can. */
  readonly notReadyKind: () => Promise<NotReadyKind | undefined>
  /** Returns the latest counts of entries; empty if the count failed. */
  readonly stock: () => Promise<readonly StockLevel[]>
  /** Returns the size of the history; undefined if it cannot be read. */
  readonly history: () => Promise<HistorySize | undefined>
  /** Returns when the last recorded backup was made; undefined if there is none, or if it cannot be read. */
  readonly lastBackup: () => Promise<Date | undefined>
  readonly requests: RequestStatistics
  readonly inventory: InventoryStatistics
  /** Connection pools by name. */
  readonly pools: Readonly<Record<string, Database>>
  readonly apiKeys: Pick<ApiKeyCache, 'readAt' | 'lifetimes'>
}

/** The metrics of the service, to which those of the process can be added. */
export interface ServiceMetrics {
  readonly register: Registry
  /** Returns the metrics in Prometheus's text format, after it has checked readiness and counted the entries. */
  scrape(): Promise<string>
}

/**
 * Creates the metrics of the service. Metrics that the OpenTelemetry semantic conventions define have those names, as
 * OpenTelemetry's Prometheus exporters write them; all others begin with `inventory_`.
 */
export function serviceMetrics(sources: ServiceSources): ServiceMetrics {
  const register = new Registry()
  const showReadiness = addReadiness(register)
  const showStock = addStock(register)
  const showHistory = addHistory(register)
  const showLastBackup = addLastBackup(register)
  addRequests(register, sources)
  addInventory(register, sources)
  addPools(register, sources)
  addApiKeys(register, sources)
  return {
    register,
    async scrape() {
      // Not in `collect`: the statements of a scrape must not count among the callers that wait for a connection.
      const [kind, levels, size, backup] = await Promise.all([
        sources.notReadyKind(),
        sources.stock(),
        sources.history(),
        sources.lastBackup(),
      ])
      showReadiness(kind)
      showStock(levels)
      showHistory(size)
      showLastBackup(backup)
      return register.metrics()
    },
  }
}

function addReadiness(register: Registry): (kind: NotReadyKind | undefined) => void {
  const ready = new Gauge({
    name: 'inventory_ready',
    help: '1 if the service can serve requests, as /readyz says, otherwise 0.',
    registers: [register],
  })
  const notReady = new Gauge({
    name: 'inventory_not_ready',
    help: '1 for the reason why the service cannot serve requests, 0 for all other reasons.',
    labelNames: ['reason'],
    registers: [register],
  })
  return (kind) => {
    ready.set(kind === undefined ? 1 : 0)
    for (const reason of notReadyKinds) notReady.set({ reason }, reason === kind ? 1 : 0)
  }
}

function addStock(register: Registry): (levels: readonly StockLevel[]) => void {
  const all = new Gauge({
    name: 'inventory_entries',
    help: 'Entries of the inventory by status, counted at most once a minute.',
    labelNames: ['status'],
    registers: [register],
  })
  const outOfStock = new Gauge({
    name: 'inventory_entries_out_of_stock',
    help: 'Entries of the inventory with a quantity of 0 by status, counted at most once a minute.',
    labelNames: ['status'],
    registers: [register],
  })
  return (levels) => {
    all.reset()
    outOfStock.reset()
    for (const level of levels) {
      all.set({ status: level.status }, level.entries)
      outOfStock.set({ status: level.status }, level.outOfStock)
    }
  }
}

function addHistory(register: Registry): (size: HistorySize | undefined) => void {
  const gaugeOf = (name: string, help: string): Gauge => new Gauge({ name, help, registers: [register] })
  const changes = gaugeOf('inventory_history_changes', 'Estimated number of changes in the history.')
  const bytes = gaugeOf('inventory_history_bytes', 'Size of the history on the disk, with indexes.')
  const oldest = gaugeOf(
    'inventory_history_oldest_timestamp_seconds',
    'When the oldest change in the history was made, in Unix time.',
  )
  return (size) => {
    for (const gauge of [changes, bytes, oldest]) gauge.remove()
    if (size === undefined || size.oldest === null) return
    changes.set(size.changes)
    bytes.set(size.bytes)
    oldest.set(size.oldest.getTime() / 1000)
  }
}

function addLastBackup(register: Registry): (time: Date | undefined) => void {
  const gauge = new Gauge({
    name: 'inventory_backup_timestamp_seconds',
    help: 'When the last recorded backup was made, in Unix time.',
    registers: [register],
  })
  return (time) => {
    if (time === undefined) gauge.remove()
    else gauge.set(time.getTime() / 1000)
  }
}

function addRequests(register: Registry, { requests }: ServiceSources): void {
  register.registerMetric(requests.durations)
  register.registerMetric(requests.malformed)
  register.registerMetric(requests.unavailable)
  new Gauge({
    name: 'inventory_requests_in_flight',
    help: 'Requests in flight, at most one of each connection.',
    registers: [register],
    collect() {
      this.set(requests.inFlight)
    },
  })
}

function addInventory(register: Registry, { inventory }: ServiceSources): void {
  register.registerMetric(inventory.batches)
  new Gauge({
    name: 'inventory_updates_waiting',
    help: 'Updates waiting to be sent to PostgreSQL.',
    registers: [register],
    collect() {
      this.set(inventory.waitingUpdates)
    },
  })
  new Counter({
    name: 'inventory_lists_total',
    help: 'Lists by what was read: all entries (read), the changed ones (changed), none (unchanged), or coalesced with another read (joined).',
    labelNames: ['result'],
    registers: [register],
    collect() {
      this.reset()
      for (const [result, value] of Object.entries(inventory.lists)) this.inc({ result }, value)
    },
  })
}

function addPools(register: Registry, { pools }: ServiceSources): void {
  const labelNames = ['db_client_connection_pool_name']
  const statistics = (): ({ labels: Record<string, string> } & ReturnType<Database['statistics']>)[] =>
    Object.entries(pools).map(([name, pool]) => ({
      labels: { db_client_connection_pool_name: name },
      ...pool.statistics(),
    }))
  new Gauge({
    name: 'db_client_connection_count',
    help: 'Connections to PostgreSQL by pool and state.',
    labelNames: [...labelNames, 'db_client_connection_state'],
    registers: [register],
    collect() {
      for (const { labels, used, idle } of statistics()) {
        this.set({ ...labels, db_client_connection_state: 'used' }, used)
        this.set({ ...labels, db_client_connection_state: 'idle' }, idle)
      }
    },
  })
  new Gauge({
    name: 'db_client_connection_max',
    help: 'Maximum connections of a pool.',
    labelNames,
    registers: [register],
    collect() {
      for (const { labels, size } of statistics()) this.set(labels, size)
    },
  })
  new Gauge({
    name: 'db_client_connection_pending_requests',
    help: 'Callers waiting for a connection.',
    labelNames,
    registers: [register],
    collect() {
      for (const { labels, waiting } of statistics()) this.set(labels, waiting)
    },
  })
  new Counter({
    name: 'inventory_database_failures_total',
    help: 'Requests and checks that failed because PostgreSQL was unreachable, too slow or unable to serve them.',
    labelNames,
    registers: [register],
    collect() {
      this.reset()
      for (const { labels, failures } of statistics()) this.inc(labels, failures)
    },
  })
}

function addApiKeys(register: Registry, { apiKeys }: ServiceSources): void {
  new Gauge({
    name: 'inventory_api_keys_read_timestamp_seconds',
    help: 'When the API keys were last read from the database, in Unix time; 0 before the first read.',
    registers: [register],
    collect() {
      this.set(apiKeys.readAt / 1000)
    },
  })
  new Gauge({
    name: 'inventory_api_key_expiry_timestamp_seconds',
    help: 'When the last key of a name expires, in Unix time; names with a key that never expires are omitted.',
    labelNames: ['key'],
    registers: [register],
    collect() {
      this.reset()
      for (const [key, { validUntil }] of apiKeys.lifetimes()) this.set({ key }, validUntil / 1000)
    },
  })
  new Gauge({
    name: 'inventory_api_key_created_timestamp_seconds',
    help: 'When the key that expires last was created, in Unix time; names with a key that never expires are omitted.',
    labelNames: ['key'],
    registers: [register],
    collect() {
      this.reset()
      for (const [key, { createdAt }] of apiKeys.lifetimes()) this.set({ key }, createdAt / 1000)
    },
  })
}
