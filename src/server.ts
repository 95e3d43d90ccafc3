#!/usr/bin/env node
import cluster from 'node:cluster'
import type { Logger } from 'pino'
import { type Config, loadConfig } from './config.ts'
import { readEnvironment } from './environment.ts'
import { explain } from './explain.ts'
import { LOCAL_DIRECTORY, setUpLocally, welcome } from './local-setup.ts'
import { openLog } from './log.ts'
import { startService } from './service.ts'
import { closeOnSignals } from './signals.ts'
import { startWorkers, WorkerFailedError } from './workers.ts'

/** How long a stop may take, in milliseconds: Docker kills a container 10 seconds after it asked it to stop. */
const STOP_LIMIT = 9000

const closers: (() => Promise<void>)[] = []

/** Closes everything that was opened, the newest first. */
async function closeAll(): Promise<void> {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close()
}

/** Serves, by this process or by workers of it, and sets up before what nobody else did. */
async function start(config: Config, log: Logger): Promise<void> {
  const settingUp = config.databaseUrl === undefined ? setUpLocally(LOCAL_DIRECTORY) : undefined
  // Before it is done: a signal in the middle of it must not leave a database running.
  closers.push(async () => (await settingUp?.catch(() => undefined))?.stop())
  const local = await settingUp
  const databaseUrl = config.databaseUrl ?? local?.databaseUrl ?? ''
  const apiKeys = config.apiKeys.length === 0 && local ? [local.key] : config.apiKeys

  let address: string
  if (config.workers > 1 && cluster.isPrimary) {
    const env = {
      DATABASE_URL: databaseUrl,
      API_KEYS: apiKeys.map(({ name, key }) => `${name}:${key}`).join(','),
    }
    const workers = startWorkers(config.workers, local ? env : {}, log)
    closers.push(workers.stop)
    address = await workers.address
  } else {
    const connections = Math.floor(config.databasePoolSize / config.workers)
    const service = await startService({ ...config, databaseUrl, apiKeys, connections }, log)
    closers.push(service.close)
    address = service.address
  }
  if (local)
    console.log(welcome(address, local, config.apiKeys.length === 0 ? local.key.key : '<your API key>'))
}

try {
  const config = loadConfig(readEnvironment())
  const log = openLog(config.logLevel)
  closeOnSignals(log, STOP_LIMIT, closeAll)
  await start(config, log)
} catch (error) {
  if (!(error instanceof WorkerFailedError)) console.error(`petstore-inventory: ${explain(error)}`)
  setTimeout(() => process.exit(1), STOP_LIMIT).unref()
  await closeAll().catch(() => {})
  process.exit(1)
}
