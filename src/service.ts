import type { Logger } from 'pino'
import { type FixedKey, fixedApiKeys } from './api-keys/fixed-keys.ts'
import type { Config } from './config.ts'
import { DatabaseUnavailableError, isRefusal } from './database/failures.ts'
import { knownMigrations } from './database/migrations.ts'
import { type Database, listLimits, openDatabase, probeLimits, requestLimits } from './database/pool.ts'
import { reasonNotReady } from './database/readiness.ts'
import { buildApp } from './http/app.ts'
import type { Readiness } from './http/health.ts'
import { inventoryRepository } from './inventory/repository.ts'

/** Where a service runs: the configuration, with the database settled and a part of the joint connections. */
export interface ServiceOptions extends Config {
  readonly databaseUrl: string
  /** The most connections that it opens to serve requests; it needs one more for `/readyz`. */
  readonly connections: number
}

/** A service that listens. */
export interface Service {
  readonly address: string
  /** Takes no more connections, answers what is in flight, and leaves the database. */
  close(): Promise<void>
}

/**
 * Opens the database and listens. A database that is away is no error: the service answers 503 until it is there.
 *
 * @throws {DatabaseUnavailableError} when the database refuses this service, which no waiting would mend
 * @throws what `listen` does, a port in use for one
 */
export async function startService(options: ServiceOptions, log: Logger): Promise<Service> {
  const { databaseUrl: url, connections } = options
  const onConnectionLost = (reason: string): void => log.warn({ reason }, 'a database connection was lost')
  const database = openDatabase({ url, size: connections - 1, limits: requestLimits, onConnectionLost })
  const lists = openDatabase({ url, size: 1, limits: listLimits, onConnectionLost })
  // Readiness has a connection of its own: a pool that is merely busy must not take the service out of rotation.
  const probe = openDatabase({ url, size: 1, limits: probeLimits, onConnectionLost })

  const migrations = await knownMigrations()
  const readiness: Readiness = () => reasonNotReady(probe, migrations)
  const app = await buildApp({
    logger: log,
    findApiKey: fixedApiKeys(options.apiKeys),
    inventory: inventoryRepository(database, lists),
    readiness,
    publicUrls: options.publicUrls,
    trustProxy: options.trustProxy,
  })
  const close = async (): Promise<void> => {
    await app.close()
    await Promise.all([database.close(), lists.close(), probe.close()])
  }

  try {
    await refuseWrongLogin(probe)
    const notReady = await readiness()
    if (notReady) log.warn({ err: notReady.cause }, `not ready: ${notReady.reason}`)
    warnOfKeys(options.apiKeys, log)
    return { address: await app.listen({ host: options.host, port: options.port }), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** A database that is away comes back by itself; a wrong password does not, so the start fails. */
async function refuseWrongLogin(database: Database): Promise<void> {
  try {
    await database.query('SELECT 1')
  } catch (error) {
    if (error instanceof DatabaseUnavailableError && isRefusal(error.cause)) throw error
  }
}

/** Random keys have 32 characters or more; one that can be guessed is as good as none. */
function warnOfKeys(keys: readonly FixedKey[], log: Logger): void {
  if (keys.length === 0) {
    log.warn(
      'no API key is set, so every request under /v1 is refused; set API_KEYS, for example to what "openssl rand -hex 32" prints',
    )
  }
  for (const { name, key } of keys) {
    if (key.length < 32)
      log.warn(`the API key "${name}" is short enough to be guessed; use one of 32 random characters`)
  }
}
