import path from 'node:path'
import { startEmbeddedServer } from '../../src/local/embedded.ts'

/** A PostgreSQL server for one run of the tests. */
export interface TestServer {
  /** Its address, as a role that may create databases. */
  readonly url: string
  /** Which one it is, and why that one. */
  readonly source: string
  stop(): Promise<void>
}

/** Speed over safety: the data of a run is thrown away. */
const settings = { fsync: 'off', max_connections: '300' }

/** The server that `TEST_DATABASE_URL` names, else one in a container, else the embedded one. */
export async function startTestServer(folder: string): Promise<TestServer> {
  const url = process.env['TEST_DATABASE_URL']
  if (url) return { url, source: 'the one at TEST_DATABASE_URL, because that is set', stop: async () => {} }
  try {
    return await startContainer()
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n', 1)[0] : String(error)
    return startEmbedded(folder, `TEST_DATABASE_URL is not set, and no container could be started: ${reason}`)
  }
}

async function startContainer(): Promise<TestServer> {
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const container = await new PostgreSqlContainer('postgres:18-alpine')
    .withCommand(['postgres', ...flags])
    .start()
  return {
    url: container.getConnectionUri(),
    source:
      'postgres:18-alpine in a container, because TEST_DATABASE_URL is not set and a Docker engine answers',
    stop: async () => {
      await container.stop()
    },
  }
}

async function startEmbedded(folder: string, reason: string): Promise<TestServer> {
  const server = await startEmbeddedServer({ directory: path.join(folder, 'postgres'), settings })
  return { url: server.url, source: `the embedded one, because ${reason}`, stop: server.stop }
}
