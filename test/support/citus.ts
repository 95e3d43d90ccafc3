import { once } from 'node:events'
import { appendFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import path from 'node:path'
import type { Test } from 'tap'
import { makeServerFolder } from './installed-postgres.ts'
import { onServer, type Row } from './on-server.ts'
import { freePort } from './other-program.ts'
import { citusPrograms } from './postgres-programs.ts'
import { temporaryFolder } from './program.ts'

/** A worker of a cluster. */
export interface CitusWorker {
  /** Ends all of its processes at once. */
  kill(): Promise<void>
  start(): Promise<void>
  /** From now on cuts the connection to it that sends a `COMMIT PREPARED`, before the worker gets it. */
  loseCommits(): void
  /** Lets commits through again. */
  keepCommits(): void
}

/** A coordinator and two workers, with the roles `owner` and `service`. */
export interface CitusCluster {
  /** The address of the coordinator's database for a role. */
  urlOf(role: string): string
  /** Runs statements on the coordinator as the superuser; every value arrives as text. */
  query(text: string): Promise<Row[]>
  readonly workers: readonly [CitusWorker, CitusWorker]
}

/** Starts a cluster that goes away with the test. */
export async function startCitus(t: Test): Promise<CitusCluster> {
  const { coordinator, workers } = await startNodes(t)
  const links: [Link, Link] = [await linkTo(t, workers[0].port), await linkTo(t, workers[1].port)]
  await formCluster(
    coordinator,
    workers,
    links.map(({ port }) => port),
  )
  await coordinator.query(
    "CREATE ROLE owner LOGIN; CREATE ROLE service LOGIN; ALTER ROLE service SET lock_timeout = '250ms'",
  )
  await coordinator.query('GRANT CREATE ON SCHEMA public TO owner')
  const workerOf = (node: CitusNode, link: Link): CitusWorker => ({
    kill: node.kill,
    start: node.start,
    loseCommits: () => {
      link.cuts = true
    },
    keepCommits: () => {
      link.cuts = false
    },
  })
  return {
    urlOf: (role) => `postgres://${role}@127.0.0.1:${coordinator.port}/postgres`,
    query: coordinator.query,
    workers: [workerOf(workers[0], links[0]), workerOf(workers[1], links[1])],
  }
}

/** A server of PostgreSQL with Citus, which may belong to a cluster. */
export interface CitusNode {
  readonly port: number
  /** The folder with its data. */
  readonly data: string
  /** Runs statements as the superuser in a database, by default `postgres`; every value arrives as text. */
  query(text: string, database?: string): Promise<Row[]>
  /** Ends all of its processes at once. */
  kill(): Promise<void>
  start(): Promise<void>
}

export interface NodeOptions {
  /** Makes a folder for one server; by default one for temporary files. */
  readonly makeFolder?: () => Promise<string>
  /** Settings of PostgreSQL for all servers. */
  readonly settings?: Readonly<Record<string, string>>
}

/** Starts three servers that do not know each other. */
async function startNodes(
  t: Pick<Test, 'teardown'>,
  { makeFolder = () => temporaryFolder(t), settings = { fsync: 'off' } }: NodeOptions = {},
): Promise<{ coordinator: CitusNode; workers: [CitusNode, CitusNode] }> {
  const programs = await citusPrograms()
  if (programs === undefined) throw new Error('There is no Citus at CITUS_BIN.')
  const start = async (): Promise<CitusNode> => startNode(t, programs, await makeFolder(), settings)
  return { coordinator: await start(), workers: [await start(), await start()] }
}

/** Makes a database of three servers a cluster. The coordinator finds the workers at `ports`. */
async function formCluster(
  coordinator: CitusNode,
  workers: readonly CitusNode[],
  ports: readonly number[],
  database = 'postgres',
): Promise<void> {
  for (const { query } of [coordinator, ...workers]) await query('CREATE EXTENSION citus', database)
  await coordinator.query(`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`, database)
  for (const port of ports) await coordinator.query(`SELECT citus_add_node('127.0.0.1', ${port})`, database)
}

async function startNode(
  t: Pick<Test, 'teardown'>,
  programs: string,
  folder: string,
  given: Readonly<Record<string, string>>,
): Promise<CitusNode> {
  const { directory, command } = await makeServerFolder(programs, folder)
  await command('initdb', '--pgdata=data', '--username=postgres', '--auth=trust', '--no-locale', '-E', 'UTF8')
  const port = await freePort()
  const settings = [
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    `port = ${port}`,
    "shared_preload_libraries = 'citus'",
    'max_prepared_transactions = 200',
    "citus.node_conninfo = 'sslmode=disable'",
    "citus.recover_2pc_interval = '1s'",
    ...Object.entries(given).map(([name, value]) => `${name} = '${value}'`),
  ]
  await appendFile(path.join(directory, 'data', 'postgresql.conf'), `${settings.join('\n')}\n`)
  let isRunning = false
  const start = async (): Promise<void> => {
    await command('pg_ctl', 'start', '--wait', '--pgdata=data', '--log=postgres.log')
    isRunning = true
  }
  const kill = async (): Promise<void> => {
    isRunning = false
    await command('pg_ctl', 'stop', '--wait', '--mode=immediate', '--pgdata=data')
  }
  t.teardown(async () => {
    if (isRunning) await kill()
  })
  await start()
  const query = (text: string, database = 'postgres'): Promise<Row[]> =>
    onServer(`postgres://postgres@127.0.0.1:${port}/${database}`, text)
  return { port, data: path.join(directory, 'data'), query, kill, start }
}

/** The way to a worker. */
interface Link {
  readonly port: number
  cuts: boolean
}

async function linkTo(t: Test, port: number): Promise<Link> {
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect({ host: '127.0.0.1', port })
    const close = (): void => {
      near.destroy()
      far.destroy()
    }
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        close()
      })
    }
    far.on('data', (bytes) => near.write(bytes))
    near.on('data', (bytes) => {
      if (link.cuts && bytes.includes('COMMIT PREPARED')) close()
      else far.write(bytes)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const address = server.address()
  const link: Link = {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    cuts: false,
  }
  return link
}
