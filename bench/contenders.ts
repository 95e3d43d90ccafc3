import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import type { Contender, ContenderName } from './cases.ts'
import { withCommits, withUpdates } from './conditions.ts'
import { type BenchDatabase, COPY_LIST } from './database.ts'
import { httpContender } from './http-contender.ts'
import type { Generator } from './load/generator.ts'
import type { PgUpdates } from './load/pg-updates.ts'
import { inProcesses, loadProcesses, split } from './load/processes.ts'
import {
  type Server,
  type ServerSetup,
  startGo,
  startNodeHttp,
  startPlainFastify,
  startService,
} from './servers.ts'
import { repeat } from './statistics.ts'

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
      return overHttp(await startService(setup))
    case 'service-commits':
      return withCommits(overHttp(await startService(setup)), database.otherUrl)
    case 'service-updates':
      return withUpdates(overHttp(await startService(setup)), database.url)
    case 'plain':
      return overHttp(await startPlainFastify(setup))
    case 'go':
      return overHttp(await startGo(setup))
    case 'node-http':
      return overHttp(await startNodeHttp(setup.directory, listFile))
    case 'node-http-commits':
      return withCommits(overHttp(await startNodeHttp(setup.directory, listFile)), database.otherUrl)
    case 'direct':
      return pgContender(database)
    case 'copy':
      return copyContender(database, list, psql)
  }
}

/** Updates one row per statement directly with pg, without HTTP. The case's number of connections is the number of clients. */
function pgContender({ url }: BenchDatabase): Contender {
  return {
    verify: async () => {},
    async measure({ connections, entries }, seconds) {
      const orders = split(connections, loadProcesses(connections)).map(
        (clients): PgUpdates => ({ databaseUrl: url, clients, seconds, entries }),
      )
      const { sample } = await inProcesses('./pg-updates.ts', orders)
      return sample
    },
    stop: async () => {},
  }
}

/** Reads the list as text with COPY and discards it: with psql if it is installed, otherwise with pg. */
function copyContender(database: BenchDatabase, list: Buffer, psql: string | undefined): Contender {
  const copy = psql === undefined ? copyByPg : copyByPsql
  return {
    async verify() {
      const chunks: Buffer[] = []
      await copyByPg(database.url, (chunk) => chunks.push(chunk))
      const lines = Buffer.concat(chunks).toString().trimEnd()
      if (`[${lines.replaceAll('\n', ',')}]` !== list.toString())
        throw new Error('the text of COPY differs from the list')
    },
    measure: (_given, seconds) =>
      repeat(seconds, async () => {
        await database.change()
        const start = performance.now()
        await copy(database.url)
        return performance.now() - start
      }),
    stop: async () => {},
  }
}

/** Returns the version of psql, or undefined if it is not installed. */
export async function installedPsql(): Promise<string | undefined> {
  return promisify(execFile)('psql', ['--version']).then(
    ({ stdout }) => stdout.trim(),
    () => undefined,
  )
}

async function copyByPsql(url: string): Promise<void> {
  const address = new URL(url)
  const password = decodeURIComponent(address.password)
  // All users of the machine can read the command line, so the password is passed in the environment.
  address.password = ''
  const child = spawn('psql', ['--no-psqlrc', `--dbname=${address.href}`, `--command=${COPY_LIST}`], {
    env: { ...process.env, PGPASSWORD: password },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`psql exited with code ${code}`)
}

async function copyByPg(url: string, take: (chunk: Buffer) => void = () => {}): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const copy = client.query(copyTo(COPY_LIST))
    copy.on('data', take)
    await finished(copy)
  } finally {
    await client.end()
  }
}
