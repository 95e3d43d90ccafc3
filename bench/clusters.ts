import { mkdtemp } from 'node:fs/promises'
import path from 'node:path'
import { migrate } from '../src/database/migrations/migrate.ts'
import { formCluster, startNodes } from '../test/support/citus.ts'
import { startOwnPair } from '../test/support/own-pair.ts'
import { citusPrograms } from '../test/support/postgres-programs.ts'
import { urlOf } from '../test/support/template.ts'
import type { ClusterKind, ContenderName } from './cases.ts'
import { type BenchDatabase, benchDatabase, settings } from './database.ts'

/** The database that a contender uses, and its standby. */
export interface Place {
  readonly database: BenchDatabase
  /** Address of the database on the standby. */
  readonly readUrl?: string
}

/** PostgreSQL servers with databases for some contenders. The other contenders use the benchmark's own database. */
export interface Cluster {
  readonly places: Readonly<Partial<Record<ContenderName, Place>>>
  stop(): Promise<void>
}

/** Descriptions of the clusters for the report. */
export const clusterNames: Readonly<Record<ClusterKind, string>> = {
  standby: 'a primary with a standby',
  citus: 'Citus with two workers',
}

/** The statement that distributes the table with Citus, by contender. */
const layouts: readonly (readonly [ContenderName, layout: string])[] = [
  ['service-citus-2', "create_distributed_table('inventory', 'pet_id', shard_count => 2)"],
  ['service-citus-32', "create_distributed_table('inventory', 'pet_id', shard_count => 32)"],
  ['service-citus-reference', "create_reference_table('inventory')"],
]

/** Returns why a cluster cannot be started on this machine, or undefined if it can. */
export async function missingFor(kind: ClusterKind): Promise<string | undefined> {
  if (kind === 'standby' || (await citusPrograms()) !== undefined) return undefined
  return 'There is no Citus here. Set CITUS_BIN to the folder of the programs of a PostgreSQL with Citus (https://docs.citusdata.com).'
}

/** Starts a cluster. Calls `onOpen` with a function that stops it, before anything is started. */
export async function openCluster(
  kind: ClusterKind,
  directory: string,
  onOpen: (stop: () => Promise<void>) => void,
): Promise<Cluster> {
  const stops: (() => unknown)[] = []
  const stop = async (): Promise<void> => {
    for (let next = stops.pop(); next !== undefined; next = stops.pop()) await next()
  }
  onOpen(stop)
  const scope = {
    teardown: (next: () => unknown): void => {
      stops.push(next)
    },
  }
  const makeFolder = (): Promise<string> => mkdtemp(path.join(directory, `${kind}-`))
  const places =
    kind === 'standby' ? await standbyPlaces(scope, await makeFolder()) : await citusPlaces(scope, makeFolder)
  return { places, stop }
}

interface Scope {
  teardown(stop: () => unknown): void
}

async function standbyPlaces(scope: Scope, folder: string): Promise<Cluster['places']> {
  const { primary, standby } = await startOwnPair(scope, {
    folder,
    settings: { ...settings, hot_standby_feedback: 'on' },
  })
  const database = await benchDatabase({
    url: primary.superuserUrl,
    serviceUrl: primary.url,
    otherUrl: primary.superuserUrl,
    where: 'embedded, with a standby',
    data: primary.data,
    otherData: [standby.data],
  })
  scope.teardown(database.stop)
  return { service: { database }, 'service-standby': { database, readUrl: standby.url } }
}

async function citusPlaces(scope: Scope, makeFolder: () => Promise<string>): Promise<Cluster['places']> {
  const { coordinator, workers } = await startNodes(scope, { makeFolder, settings })
  const nodes = [coordinator, ...workers]
  const ports = workers.map(({ port }) => port)
  await formCluster(coordinator, workers, ports)
  await coordinator.query("CREATE ROLE service LOGIN; ALTER ROLE service SET lock_timeout = '250ms'")
  const serverUrl = `postgres://postgres@127.0.0.1:${coordinator.port}/postgres`
  const places: Partial<Record<ContenderName, Place>> = {}
  for (const [index, [name, layout]] of layouts.entries()) {
    const databaseName = `layout_${index}`
    for (const { query } of nodes) await query(`CREATE DATABASE ${databaseName}`)
    await formCluster(coordinator, workers, ports, databaseName)
    const url = urlOf(serverUrl, databaseName)
    await migrate({ url, direction: 'up', log: () => {} })
    await coordinator.query('GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO service', databaseName)
    await coordinator.query(`SELECT ${layout}`, databaseName)
    const database = await benchDatabase({
      url,
      serviceUrl: url.replace('postgres@', 'service@'),
      otherUrl: serverUrl,
      where: 'with Citus',
      data: coordinator.data,
      otherData: workers.map(({ data }) => data),
    })
    scope.teardown(database.stop)
    places[name] = { database }
  }
  return places
}
