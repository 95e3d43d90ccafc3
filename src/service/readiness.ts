import { knownMigrations } from '../database/admin/migrations.ts'
import { type NotReady, reasonNotReady } from '../database/admin/readiness.ts'
import { hasCause } from '../database/causes.ts'
import type { Pool } from '../database/pool.ts'
import type { Readiness } from '../http/health.ts'
import type { Pools } from './pools.ts'

/** How long it is cached that the service is ready. */
const MAX_AGE_MS = 1000

/**
 * Returns the readiness check of a service. A call shares the check in progress, or that the service was ready in the last second.
 * A reason is not cached, so that several failures for a load balancer are several checks.
 */
export async function readinessOf({ probe, requests, planned }: Pools): Promise<Readiness> {
  const migrations = await knownMigrations()
  const check = (database: Pool): Promise<NotReady | undefined> =>
    reasonNotReady(database, {
      migrations,
      tables: ['inventory', 'api_keys'],
      statements: planned,
    })
  const checkEither = async (): Promise<NotReady | undefined> => {
    const notReady = await check(probe)
    // The probe opens a connection every few seconds, so it is the first to get none. Requests may still be served on theirs.
    return hasCause(notReady?.cause, 'outOfConnections') ? check(requests) : notReady
  }
  let latest: Promise<NotReady | undefined> | undefined
  return () => {
    latest ??= checkEither().then((notReady) => {
      if (notReady === undefined) setTimeout(() => (latest = undefined), MAX_AGE_MS).unref()
      else latest = undefined
      return notReady
    })
    return latest
  }
}
