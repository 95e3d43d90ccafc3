import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, chmod, mkdir } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import type { Test } from 'tap'
import { serverAccount } from '../../src/local/embedded-programs.ts'
import { freePort, giveTo } from './other-program.ts'
import { citusPrograms } from './postgres-programs.ts'
import { temporaryFolder } from './program.ts'

const run = promisify(execFile)

type Row = Readonly<Record<string, string | null>>

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
  const programs = await citusPrograms()
  if (programs === undefined) throw new Error('There is no Citus at CITUS_BIN.')
  const coordinator = await startNode(t, programs)
  const workers: [Node, Node] = [await startNode(t, programs), await startNode(t, programs)]
  const links: [Link, Link] = [await linkTo(t, workers[0].port), await linkTo(t, workers[1].port)]
  for (const { query } of [coordinator, ...workers]) await query('CREATE EXTENSION citus')
  await coordinator.query(`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`)
  for (const { port } of links) await coordinator.query(`SELECT citus_add_node('127.0.0.1', ${port})`)
  await coordinator.query(
    "CREATE ROLE owner LOGIN; CREATE ROLE service LOGIN; ALTER ROLE service SET lock_timeout = '250ms'",
  )
  await coordinator.query('GRANT CREATE ON SCHEMA public TO owner')
  const workerOf = (node: Node, link: Link): CitusWorker => ({
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

interface Node {
  readonly port: number
  query(text: string): Promise<Row[]>
  kill(): Promise<void>
  start(): Promise<void>
}

async function startNode(t: Test, programs: string): Promise<Node> {
  const account = serverAccount()
  const folder = await temporaryFolder(t)
  await chmod(folder, 0o711)
  const directory = path.join(folder, 'postgres')
  await mkdir(directory, { mode: 0o700 })
  await giveTo(account, directory)
  const command = (name: string, ...args: string[]): Promise<unknown> =>
    run(path.join(programs, name), args, { ...account, cwd: directory })
  await command('initdb', '--pgdata=data', '--username=postgres', '--auth=trust', '--no-locale', '-E', 'UTF8')
  const port = await freePort()
  const settings = [
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    `port = ${port}`,
    'fsync = off',
    "shared_preload_libraries = 'citus'",
    'max_prepared_transactions = 200',
    "citus.node_conninfo = 'sslmode=disable'",
    "citus.recover_2pc_interval = '1s'",
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
  const query = async (text: string): Promise<Row[]> => {
    const client = new pg.Client({
      connectionString: `postgres://postgres@127.0.0.1:${port}/postgres`,
      types: { getTypeParser: () => String },
    })
    client.on('error', () => {})
    await client.connect()
    try {
      return (await client.query<Row>(text)).rows
    } finally {
      await client.end()
    }
  }
  return { port, query, kill, start }
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
