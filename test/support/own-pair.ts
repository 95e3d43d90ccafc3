import { appendFile, chmod } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import type { Test } from 'tap'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/local/embedded.ts'
import { asService, copyCluster } from './cluster.ts'
import { temporaryFolder } from './program.ts'

/** One server of a pair. */
export interface PairServer {
  /** The database with the newest schema, as the superuser. */
  readonly superuserUrl: string
  /** The folder with its data. */
  readonly data: string
  /** The database with the newest schema, as a role that can do what the server needs, and no superuser. */
  readonly url: string
  /** Runs a statement in that database as the superuser; every value arrives as text. */
  query(text: string): Promise<Readonly<Record<string, string | null>>[]>
  stop(): Promise<void>
  /** Starts it again, on the same port. */
  start(): Promise<void>
}

export interface PairOptions {
  /** A folder for both; by default one for temporary files. */
  readonly folder?: string
  /** Settings of PostgreSQL for both. */
  readonly settings?: Readonly<Record<string, string>>
}

/** A primary and a standby of it, both of the embedded PostgreSQL, which go away with the test. */
export async function startOwnPair(
  t: Pick<Test, 'teardown'>,
  { folder: given, settings = {} }: PairOptions = {},
): Promise<{ primary: PairServer; standby: PairServer }> {
  const folder = given ?? (await temporaryFolder(t))
  await chmod(folder, 0o755)
  const first = path.join(folder, 'primary')
  const second = path.join(folder, 'standby')
  // The standby begins as a copy of the files of a primary that does not run.
  await copyCluster(first)
  await copyCluster(second)
  const primary = await startEmbeddedServer({ directory: first, settings })
  const { hostname, port, password } = new URL(primary.url)
  const connection = `primary_conninfo = 'host=${hostname} port=${port} user=postgres password=${password}'\n`
  await appendFile(path.join(second, 'data', 'postgresql.auto.conf'), connection)
  await appendFile(path.join(second, 'data', 'standby.signal'), '')
  const standby = await startEmbeddedServer({ directory: second, settings })
  return { primary: serverOf(t, primary, settings), standby: serverOf(t, standby, settings) }
}

function serverOf(
  t: Pick<Test, 'teardown'>,
  server: EmbeddedServer,
  settings: Readonly<Record<string, string>>,
): PairServer {
  let running: EmbeddedServer | undefined = server
  const { port } = new URL(server.url)
  const stop = async (): Promise<void> => {
    const stopping = running
    running = undefined
    await stopping?.stop()
  }
  t.teardown(stop)
  return {
    superuserUrl: server.url,
    data: path.join(server.directory, 'data'),
    url: asService(server.url),
    query: (text) => onServer(server.url, text),
    stop,
    async start() {
      running = await startEmbeddedServer({ directory: server.directory, settings: { ...settings, port } })
    },
  }
}

async function onServer(url: string, text: string): Promise<Readonly<Record<string, string | null>>[]> {
  const client = new pg.Client({ connectionString: url, types: { getTypeParser: () => String } })
  await client.connect()
  try {
    return (await client.query<Record<string, string | null>>(text)).rows
  } finally {
    await client.end()
  }
}
