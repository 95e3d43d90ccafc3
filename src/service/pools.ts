import type { Logger } from 'pino'
import { ACTIVE_KEYS, KEYS_TABLE } from '../api-keys/stored-keys.ts'
import type { Config } from '../config/load-config.ts'
import { createPool, type Pool, type PoolOptions } from '../database/pool.ts'
import { PrimaryServer } from '../database/primary.ts'
import { listLimits, probeLimits, requestLimits } from '../database/time-limits.ts'
import { INVENTORY_TABLE } from '../inventory/entry/columns.ts'
import { HISTORY_TABLE } from '../inventory/history/changes.ts'
import { listSettings, listTexts } from '../inventory/list/reads/list-statements.ts'
import { updateSettings, updateTexts } from '../inventory/updates/repository.ts'
import type { Tracing } from '../tracing/tracing.ts'

/**
 * How long the probe's connection is used. As the API keys are read through it, a new one soon shows where the address leads now, even
 * while a former primary still responds on open connections.
 */
const PROBE_LIFETIME_SECONDS = 5

export interface PoolsOptions extends Pick<Config, 'behindPooler' | 'databasePoolSize'> {
  readonly databaseUrl: string
  readonly tracing: Tracing | undefined
}

/** The time limits of each pool. */
export const databaseLimits = { requests: requestLimits, lists: listLimits, probe: probeLimits }

/** Opens the pools. Of `databasePoolSize`, one connection is for lists; the probe has one more. */
export function createPools(options: PoolsOptions, limits: typeof databaseLimits, log: Logger) {
  const { databaseUrl: url, behindPooler, databasePoolSize, tracing } = options
  const onConnectionLost = (reason: string): void => log.warn({ reason }, 'a database connection was lost')
  const server = new PrimaryServer((reason) => log.warn({ reason }, 'all database connections are renewed'))
  const traced = (name: string, pool: Pool): Pool => tracing?.statements(pool, name) ?? pool
  const open = (
    size: number,
    rest: Pick<PoolOptions, 'limits' | 'settings' | 'lifetimeSeconds' | 'staysOpen' | 'isForUpdates'>,
  ): Pool => createPool({ url, server, size, behindPooler, onConnectionLost, ...rest })

  const probe = open(1, { limits: limits.probe, lifetimeSeconds: PROBE_LIFETIME_SECONDS })
  const requests = traced(
    'requests',
    open(databasePoolSize - 1, { limits: limits.requests, settings: updateSettings, isForUpdates: true }),
  )
  // After a new connection, the next list is read in full: the server may have crashed meanwhile.
  const lists = traced('lists', open(1, { limits: limits.lists, settings: listSettings, staysOpen: true }))
  return {
    /** What requests need of the database, for readiness. */
    needs: {
      tables: [INVENTORY_TABLE, HISTORY_TABLE, KEYS_TABLE],
      statements: [...listTexts(lists.backend), ...updateTexts, ACTIVE_KEYS],
    },
    /** For updates, and for the count of the entries. */
    requests,
    lists,
    /** For readiness and API keys: a busy pool must not take the service out of rotation, or keep a revoked key active. */
    probe,
    async close(): Promise<void> {
      await Promise.all([requests, lists, probe].map((pool) => pool.close()))
    },
  }
}
