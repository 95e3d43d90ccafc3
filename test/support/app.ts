import { Writable } from 'node:stream'
import { pino } from 'pino'
import type { Test } from 'tap'
import { fixedApiKeys } from '../../src/api-keys/fixed-keys.ts'
import { version } from '../../src/config/version.ts'
import { knownMigrations } from '../../src/database/migrations.ts'
import { listLimits, openDatabase, probeLimits, requestLimits } from '../../src/database/pool.ts'
import { reasonNotReady } from '../../src/database/readiness.ts'
import { type AppOptions, buildApp } from '../../src/http/app.ts'
import { RequestStatistics } from '../../src/http/connections/request-statistics.ts'
import { inventoryRepository, updateSettings } from '../../src/inventory/repository.ts'
import { InventoryStatistics } from '../../src/inventory/statistics.ts'
import { callerOf, type Send } from './http.ts'

/** The key that `TestApp.send` presents unless it is told otherwise. */
export const apiKey = 'a-key-for-tests-0123456789abcdefghijklm'

export interface TestApp {
  readonly port: number
  /** Sends a request with the key. */
  readonly send: Send
  /** The log so far, a parsed line each. */
  readonly log: Record<string, unknown>[]
  close(): Promise<void>
}

/** Starts the service as production makes it on a port of its own; only its log goes elsewhere. */
export async function startApp(
  t: Test,
  databaseUrl: string,
  overrides: Partial<AppOptions> & { poolSize?: number } = {},
): Promise<TestApp> {
  const log: Record<string, unknown>[] = []
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      log.push(JSON.parse(chunk.toString()))
      done()
    },
  })
  const logger = pino({ base: null }, stream)
  const onConnectionLost = (reason: string): void => logger.warn({ reason }, 'a database connection was lost')
  const { poolSize = 10, ...options } = overrides
  const database = openDatabase({
    url: databaseUrl,
    size: poolSize - 1,
    limits: requestLimits,
    settings: updateSettings,
    onConnectionLost,
  })
  const lists = openDatabase({ url: databaseUrl, size: 1, limits: listLimits, onConnectionLost })
  const probe = openDatabase({ url: databaseUrl, size: 1, limits: probeLimits, onConnectionLost })
  const migrations = await knownMigrations()
  const app = await buildApp({
    logger,
    version,
    findApiKey: fixedApiKeys([{ name: 'tests', key: apiKey }]),
    inventory: inventoryRepository(database, lists),
    readiness: () => reasonNotReady(probe, migrations),
    requestStatistics: new RequestStatistics(),
    inventoryStatistics: new InventoryStatistics(),
    publicUrls: [],
    trustProxy: [],
    ...options,
  })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  let closed: Promise<void> | undefined
  const close = (): Promise<void> => {
    closed ??= (async () => {
      await app.close()
      await probe.close()
      await lists.close()
      await database.close()
    })()
    return closed
  }
  t.teardown(close)
  const port = Number(new URL(address).port)
  return { port, log, close, send: callerOf(port, { authorization: `Bearer ${apiKey}` }) }
}
