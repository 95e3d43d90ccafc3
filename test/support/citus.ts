import type { Test } from 'tap'
import { type OwnServer, startInstalled } from './own-server.ts'
import { startRelay } from './relay.ts'

/** A coordinator and two workers, with the roles `owner` and `service`. */
export type CitusCluster = Awaited<ReturnType<typeof startCitus>>

const settings = {
  fsync: 'off',
  shared_preload_libraries: 'citus',
  max_prepared_transactions: '200',
  'citus.node_conninfo': 'sslmode=disable',
  'citus.recover_2pc_interval': '1s',
}

/** Starts a cluster that goes away with the test. */
export async function startCitus(t: Test) {
  const start = async (): Promise<OwnServer> => {
    const node = await startInstalled(t, process.env['CITUS_BIN'] ?? '', settings)
    await node.query('CREATE EXTENSION citus')
    return node
  }
  const coordinator = await start()
  const { query, port, superuserUrl } = coordinator
  await query(`SELECT citus_set_coordinator_host('127.0.0.1', ${port})`)
  const startWorker = async () => {
    const node = await start()
    const worker = {
      kill: node.kill,
      start: node.start,
      /** While it is true, a connection to the worker that sends a `COMMIT PREPARED` is cut before the worker gets it. */
      losesCommits: false,
    }
    const way = await startRelay(t, node.superuserUrl, {
      towardsDatabase: (bytes) =>
        worker.losesCommits && bytes.includes('COMMIT PREPARED') ? undefined : bytes,
    })
    await query(`SELECT citus_add_node('127.0.0.1', ${new URL(way.url).port})`)
    return worker
  }
  const workers = [await startWorker(), await startWorker()] as const
  await query(
    "CREATE ROLE owner LOGIN; CREATE ROLE service LOGIN; ALTER ROLE service SET lock_timeout = '250ms'",
  )
  await query('GRANT CREATE ON SCHEMA public TO owner')
  /** The address of the coordinator's database for a role. */
  const urlOf = (role: string): string => superuserUrl.replace('postgres@', `${role}@`)
  return { urlOf, query, workers }
}
