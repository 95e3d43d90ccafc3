import type { Test } from 'tap'
import { createPool, type PoolOptions } from '../../src/database/pool.ts'
import { PrimaryServer } from '../../src/database/primary.ts'
import { longLimits } from './app.ts'
import { testDatabase } from './database.ts'

/**
 * Opens a pool on a database of its own, of one connection by default, so that each statement has the connection of the one before.
 * `lost` has why connections were lost.
 */
export async function openPool(t: Test, options: Partial<PoolOptions> = {}) {
  const owner = await testDatabase(t)
  const lost: string[] = []
  const pool = createPool({
    url: owner.url,
    server: new PrimaryServer(() => {}),
    size: 1,
    limits: longLimits.requests,
    onConnectionLost: (reason) => lost.push(reason),
    ...options,
  })
  t.teardown(() => pool.close())
  return { owner, pool, lost }
}

/** A statement that returns the process id of the server process that it runs in. */
export const backend = { name: 'backend', text: 'SELECT pg_backend_pid() AS pid' }
