import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { migrate } from '../../src/database/admin/migrate.ts'
import { startEmbeddedServer } from '../../src/local/embedded.ts'
import { readImage } from './containers.ts'
import { eventually } from './eventually.ts'
import { onServer } from './on-server.ts'

/** Speed over safety: the data of a run is thrown away. */
const settings = { fsync: 'off', max_connections: '300' }

/**
 * Finds or starts the PostgreSQL server for one run of the tests: the one that `TEST_DATABASE_URL` names, else one in a container,
 * else the embedded one. Adds a database that has the newest schema and no rows, which tests clone. Returns which server it is, and
 * why that one, and the environment variables by which `testDatabase` finds both.
 */
export async function startTestServer(folder: string) {
  const { url, source, stop } = await startServer(folder)
  const template = `test_template_${randomBytes(6).toString('hex')}`
  await onServer(url, `CREATE DATABASE ${template}`)
  await migrate({ url: replaceDatabase(url, template), direction: 'up' })
  const [row] = await onServer(url, 'SHOW server_version_num')
  // PostgreSQL's default writes every page of the template to the write-ahead log, for twice the processor time.
  const strategy = Number(row?.['server_version_num']) >= 150_000 ? 'STRATEGY FILE_COPY' : ''
  return {
    source,
    env: { TEST_SERVER_URL: url, TEST_TEMPLATE: template, TEST_TEMPLATE_STRATEGY: strategy },
    async stop() {
      await onServer(url, `DROP DATABASE ${template} WITH (FORCE)`)
      await stop()
    },
  }
}

async function startServer(folder: string) {
  const url = process.env['TEST_DATABASE_URL']
  if (url) return { url, source: 'the one at TEST_DATABASE_URL, because that is set', stop: async () => {} }
  const image = await readImage('postgres')
  try {
    return await startContainer(image)
  } catch (error) {
    const server = await startEmbeddedServer(path.join(folder, 'postgres'), settings)
    const [reason] = String(error instanceof Error ? error.message : error).split('\n')
    const source = `the embedded one, because TEST_DATABASE_URL is not set, and no container of ${image} could be started: ${reason}`
    // Tests add parameters of their own.
    return { ...server, url: server.url.replace(/\?.*/, ''), source }
  }
}

/**
 * Starts PostgreSQL without a health check, which Testcontainers' own class for it has: Docker kills one that takes a second, as on a
 * busy machine, and PostgreSQL inherits what is left of it, takes its end for a crash of its own, and restarts.
 */
async function startContainer(image: string) {
  const { GenericContainer } = await import('testcontainers')
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const container = await new GenericContainer(image)
    .withEnvironment({ POSTGRES_PASSWORD: 'tests' })
    .withExposedPorts(5432)
    .withCommand(['postgres', ...flags])
    .withTmpFs({ '/var/lib/postgresql': 'rw' })
    // The default is too small for parallel queries.
    .withSharedMemorySize(256 * 1024 ** 2)
    .withStartupTimeout(120_000)
    .start()
  const url = `postgres://postgres:tests@${container.getHost()}:${container.getMappedPort(5432)}/postgres`
  await eventually('PostgreSQL', () => onServer(url, 'SELECT').catch(() => false as const))
  const source = `${image} in a container, because TEST_DATABASE_URL is not set and a Docker engine answers`
  return { url, source, stop: () => container.stop() }
}

/** The address of another database of the same server. */
export function replaceDatabase(serverUrl: string, database: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${database}`
  return url.href
}
