import { Gauge, type Registry } from 'prom-client'
import type { ApiKeyCache } from '../api-keys/cache.ts'
import { findKeyEnds } from '../api-keys/stored-keys.ts'
import { lastBackup } from '../database/admin/server-status.ts'
import { notReadyReasons } from '../database/causes.ts'
import type { Pool } from '../database/pool.ts'
import type { Readiness } from '../database/readiness.ts'
import { stockSample } from '../inventory/reports/stock-levels.ts'

/** What the metrics of the service are read from at each scrape. */
export interface ServiceSources {
  readonly readiness: Readiness
  readonly apiKeys: ApiKeyCache
  readonly pools: Readonly<Record<'requests' | 'lists' | 'probe', Pool>>
}

/**
 * Creates the metrics of the service. Those of the OpenTelemetry semantic conventions are named as its Prometheus exporters write
 * them; all others begin with `inventory_`.
 */
export function serviceMetrics(register: Registry, { readiness, apiKeys, pools }: ServiceSources) {
  const gauge = (name: string, help: string, ...labelNames: string[]) =>
    new Gauge({ name, help, labelNames, registers: [register] })
  const ready = gauge('inventory_ready', '1 if the service can serve requests, as /readyz says, otherwise 0.')
  const notReady = gauge(
    'inventory_not_ready',
    '1 for the reason for not being ready, otherwise 0.',
    'reason',
  )
  const entries = gauge('inventory_entries', 'Entries by status, counted at most once a minute.', 'status')
  const outOfStock = gauge('inventory_entries_out_of_stock', 'Entries with a quantity of 0.', 'status')
  const backupTime = gauge('inventory_backup_timestamp_seconds', 'When the last recorded backup was made.')
  const keysReadTime = gauge(
    'inventory_api_keys_read_timestamp_seconds',
    'When the API keys in use were last read from the database; 0 before the first read.',
  )
  const keyExpiry = gauge(
    'inventory_api_key_expiry_timestamp_seconds',
    'When the last key of a name expires; names with a key that never expires are omitted.',
    'key',
  )
  const poolLabel = 'db_client_connection_pool_name'
  const stateLabel = 'db_client_connection_state'
  const connections = gauge('db_client_connection_count', 'Connections by state.', poolLabel, stateLabel)
  const maxConnections = gauge('db_client_connection_max', 'Maximum connections of a pool.', poolLabel)
  const callers = gauge('db_client_connection_pending_requests', 'Callers waiting for one.', poolLabel)

  const { requests, probe } = pools
  const stock = stockSample(requests)
  return {
    register,
    /** Returns the metrics in Prometheus's text format. */
    async scrape() {
      const [reason, levels, backup, keyEnds] = await Promise.all([
        readiness(),
        stock(),
        lastBackup(probe).catch(() => undefined),
        findKeyEnds(probe).catch(() => undefined),
      ])
      ready.set(reason === undefined ? 1 : 0)
      for (const kind of Object.keys(notReadyReasons))
        notReady.set({ reason: kind }, kind === reason?.kind ? 1 : 0)
      entries.reset()
      outOfStock.reset()
      for (const level of levels) {
        entries.set({ status: level.status }, level.entries)
        outOfStock.set({ status: level.status }, level.outOfStock)
      }
      // Without labels, `reset` sets it to 0.
      backupTime.remove()
      if (backup) backupTime.set(backup.getTime() / 1000)
      keysReadTime.set(apiKeys.refreshedAt / 1000)
      // While the keys cannot be read, those of the last time remain valid.
      if (keyEnds) keyExpiry.reset()
      for (const { name, end } of keyEnds ?? []) keyExpiry.set({ key: name }, end)
      // Only now: the statements of a scrape must not count among the callers that wait for a connection.
      for (const [name, pool] of Object.entries(pools)) {
        const { used, idle, size, waiting } = pool.statistics()
        connections.set({ [poolLabel]: name, [stateLabel]: 'used' }, used)
        connections.set({ [poolLabel]: name, [stateLabel]: 'idle' }, idle)
        maxConnections.set({ [poolLabel]: name }, size)
        callers.set({ [poolLabel]: name }, waiting)
      }
      return register.metrics()
    },
  }
}
