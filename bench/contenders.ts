import type { ContenderName } from './cases.ts'
import { withCommits } from './commits.ts'
import type { Contender } from './contender.ts'
import type { BenchDatabase } from './database.ts'
import { copyContender, pgContender } from './database-contenders.ts'
import { httpContender } from './http-contender.ts'
import type { Generator } from './load/generator.ts'
import {
  type Server,
  type ServerSetup,
  startGo,
  startNodeHttp,
  startPlainFastify,
  startService,
} from './servers.ts'

export interface ContenderOptions {
  readonly setup: ServerSetup
  readonly database: BenchDatabase
  readonly generator: Generator
  readonly psql: string | undefined
  /** The list of the initial inventory, and a file that contains it. */
  readonly list: Buffer
  readonly listFile: string
}

/** Prepares a contender for measurements, and starts it if it is a server. */
export async function openContender(name: ContenderName, options: ContenderOptions): Promise<Contender> {
  const { setup, database, psql, list, listFile } = options
  const overHttp = (server: Server): Contender => httpContender({ ...options, server, key: setup.key })
  switch (name) {
    case 'service':
      return overHttp(await startService(setup, 1))
    case 'service-2':
      return overHttp(await startService(setup, 2))
    case 'service-4':
      return overHttp(await startService(setup, 4))
    case 'service-commits':
      return withCommits(overHttp(await startService(setup, 1)), database.otherUrl)
    case 'plain':
      return overHttp(await startPlainFastify(setup))
    case 'go':
      return overHttp(await startGo(setup))
    case 'node-http':
      return overHttp(await startNodeHttp(setup.directory, listFile))
    case 'direct':
      return pgContender(database)
    case 'copy':
      return copyContender(database, list, psql)
  }
}
