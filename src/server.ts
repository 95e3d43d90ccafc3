#!/usr/bin/env node
import closeWithGrace from 'close-with-grace'
import type { Logger } from 'pino'
import { type FixedKey, fixedApiKeys } from './api-keys/fixed-keys.ts'
import { type Config, loadConfig } from './config.ts'
import { DatabaseUnavailableError, isRefusal } from './database/failures.ts'
import { knownMigrations } from './database/migrations.ts'
import { type Database, openDatabase, probeLimits, requestLimits } from './database/pool.ts'
import { reasonNotReady } from './database/readiness.ts'
import { readEnvironment } from './environment.ts'
import { explain } from './explain.ts'
import { buildApp } from './http/app.ts'
import { inventoryRepository } from './inventory/repository.ts'
import { setUpLocally, welcome } from './local-setup.ts'
import { openLog } from './log.ts'

/** Where the local setup keeps its data, below the working directory. */
const LOCAL_DIRECTORY = '.data'

/** How long a stop may take, in milliseconds: Docker kills a container 10 seconds after it asked it to stop. */
const STOP_LIMIT = 9000

/** npm passes on a Ctrl-C that the terminal has sent to this process already; within this time it is the same one. */
const SAME_SIGNAL = 200

const closers: (() => Promise<void>)[] = []

/** Closes everything that was opened, the newest first. */
async function closeAll(): Promise<void> {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close()
}

async function start(config: Config, log: Logger): Promise<void> {
  const local = config.databaseUrl === undefined ? await setUpLocally(LOCAL_DIRECTORY) : undefined
  if (local) closers.push(local.stop)

  const url = config.databaseUrl ?? local?.databaseUrl ?? ''
  const onConnectionLost = (reason: string): void => log.warn({ reason }, 'a database connection was lost')
  const database = openDatabase({
    url,
    size: config.databasePoolSize,
    limits: requestLimits,
    onConnectionLost,
  })
  // Readiness has a connection of its own: a pool that is merely busy must not take the service out of rotation.
  const probe = openDatabase({ url, size: 1, limits: probeLimits, onConnectionLost })
  closers.push(database.close, probe.close)

  const migrations = await knownMigrations()
  const readiness = (): Promise<string | undefined> => reasonNotReady(probe, migrations)
  const apiKeys = config.apiKeys.length === 0 && local ? [local.key] : config.apiKeys
  const app = await buildApp({
    logger: log,
    findApiKey: fixedApiKeys(apiKeys),
    inventory: inventoryRepository(database),
    readiness,
    publicUrls: config.publicUrls,
    trustProxy: config.trustProxy,
  })
  closers.push(() => app.close())

  await refuseWrongLogin(probe)
  const reason = await readiness()
  if (reason !== undefined) log.warn(`not ready: ${reason}`)
  warnOfKeys(apiKeys, log)

  const address = await app.listen({ host: config.host, port: config.port })
  if (local)
    console.log(welcome(address, local, config.apiKeys.length === 0 ? local.key.key : '<your API key>'))
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

function stopOnSignals(log: Logger): void {
  const { close } = closeWithGrace(
    { delay: STOP_LIMIT, logger: log, skip: ['SIGINT', 'SIGTERM'] },
    async ({ err }) => {
      if (err) log.fatal({ err }, 'stopping after a fault of the service')
      await closeAll()
      log.info('stopped')
    },
  )
  let stopping: number | undefined
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (stopping === undefined) {
        stopping = performance.now()
        log.info(`${signal}: stopping`)
        close()
      } else if (performance.now() - stopping > SAME_SIGNAL) {
        log.error(`second ${signal}: exiting at once`)
        process.exit(1)
      }
    })
  }
}

try {
  const config = loadConfig(readEnvironment())
  const log = openLog(config.logLevel)
  stopOnSignals(log)
  await start(config, log)
} catch (error) {
  console.error(`petstore-inventory: ${explain(error)}`)
  setTimeout(() => process.exit(1), STOP_LIMIT).unref()
  await closeAll().catch(() => {})
  process.exit(1)
}
