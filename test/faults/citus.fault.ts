import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { requestLimits } from '../../src/database/time-limits.ts'
import { inventory, succeed } from '../support/command.ts'
import { eventually } from '../support/eventually.ts'
import { type Answer, json, type Send } from '../support/http.ts'
import { hold } from '../support/on-server.ts'
import { startInstalled } from '../support/own-server.ts'
import { startServer } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { everyCommand } from './every-command.ts'

const settings = {
  fsync: 'off',
  shared_preload_libraries: 'citus',
  max_prepared_transactions: '200',
  'citus.node_conninfo': 'sslmode=disable',
  'citus.recover_2pc_interval': '1s',
}

async function startNode(t: Test) {
  const node = await startInstalled(t, process.env['CITUS_BIN'] ?? '', settings)
  await node.query('CREATE EXTENSION citus')
  return node
}

/** Starts a coordinator and two workers, with the roles `owner` and `service`. */
async function startCitus(t: Test) {
  const { query, port, superuserUrl } = await startNode(t)
  await query(`SELECT citus_set_coordinator_host('127.0.0.1', ${port})`)
  const startWorker = async () => {
    const { kill, start, superuserUrl } = await startNode(t)
    const worker = {
      kill,
      start,
      /** While it is true, a connection to the worker that sends a `COMMIT PREPARED` is cut before the worker gets it. */
      losesCommits: false,
    }
    const way = await startRelay(t, superuserUrl, {
      towardsDatabase: (bytes) =>
        worker.losesCommits && bytes.includes('COMMIT PREPARED') ? undefined : bytes,
    })
    await query(`SELECT citus_add_node('127.0.0.1', ${new URL(way.url).port})`)
    return worker
  }
  const workers = [await startWorker(), await startWorker()] as const
  await query(
    `CREATE ROLE owner LOGIN; CREATE ROLE service LOGIN; ALTER ROLE service SET lock_timeout = ${requestLimits.lock}`,
  )
  await query('GRANT CREATE ON SCHEMA public TO owner')
  return {
    owner: superuserUrl.replace('postgres@', 'owner@'),
    service: superuserUrl.replace('postgres@', 'service@'),
    query,
    workers,
    /** Has Citus keep the table in one of the `kinds`. Before 13.1, it has no privileges on columns. */
    arrange: (sql: string) => query(`SET ROLE owner; GRANT UPDATE ON inventory TO service; ${sql}`),
  }
}

/** How many pets the tests update at once. */
const PETS = 64

/** The ways in which Citus can keep the table. */
const kinds = {
  'a distributed table': "SELECT create_distributed_table('inventory', 'pet_id', shard_count => 2)",
  'a reference table': "SELECT create_reference_table('inventory')",
  'a local table that Citus knows': "SELECT citus_add_local_table_to_metadata('inventory')",
  'a local table': 'SELECT 1',
} as const

/** Starts a cluster with that many pets, each with the quantity 0, in a table that `sql` arranges, and the service. */
async function startService(t: Test, sql: string) {
  const cluster = await startCitus(t)
  await succeed(t, cluster.owner, 'migrate up --server-role service')
  await cluster.arrange(sql)
  await cluster.query(`INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, ${PETS}) n`)
  return { ...cluster, ...(await startServer(t, { DATABASE_URL: cluster.service })) }
}

const pets = Array.from({ length: PETS }, (_, index) => index + 1)

const updateAll = (send: Send, quantity: number): Promise<Answer[]> =>
  Promise.all(pets.map((pet) => send('PATCH', `/v1/inventory/${pet}`, json({ quantity }))))

/** Waits until all updates are served. */
const recovery = (what: string, send: Send, quantity: number): Promise<true> =>
  eventually(what, async () => listStatuses(await updateAll(send, quantity)).join() === '200')

async function listQuantities(send: Send): Promise<number[]> {
  const { status, text } = await send('GET', '/v1/inventory')
  if (status !== 200) throw new Error(`A list was answered with ${status}: ${text}`)
  return [...text.matchAll(/"quantity":(\d+)/g)].map(([, quantity]) => Number(quantity))
}

const listStatuses = (answers: readonly Answer[]): number[] => [
  ...new Set(answers.map(({ status }) => status)),
]

for (const [kind, sql] of Object.entries(kinds)) {
  t.test(`${kind}: every command and every request`, async (t) => {
    const cluster = await startCitus(t)
    const { code, stdout } = await everyCommand(t, {
      ...cluster,
      arrange: () => cluster.arrange(sql),
      ...(kind.startsWith('a local table') ? {} : { historyError: /triggers are not supported/ }),
    })
    t.equal(code, 0)
    t.notMatch(stdout, /"level":[56]0/)
  })
}

t.test('an update of a reference table whose commit is lost on one server is not acknowledged', async (t) => {
  const { send, workers } = await startService(t, kinds['a reference table'])
  await recovery('the updates to be served', send, 1)
  let unknown = 0
  for (let quantity = 2; quantity < 7; quantity++) {
    workers[1].losesCommits = true
    const answers = await updateAll(send, quantity)
    const listed = await listQuantities(send)
    workers[1].losesCommits = false
    for (const [index, { status, text }] of answers.entries()) {
      if (status === 200)
        t.equal(listed[index], quantity, `pet ${index + 1}: an acknowledged update is listed`)
      else t.equal(status, 503, text)
    }
    unknown += answers.filter(({ status }) => status === 503).length
    // Citus finishes what is prepared; until then those rows are locked.
    await recovery('Citus to finish the commits', send, 1)
  }
  t.ok(unknown > 0, `${unknown} updates were answered with a 503`)
})

t.test('a table that is distributed while the service runs', async (t) => {
  const { arrange, owner, query, send, stop, workers } = await startService(t, kinds['a local table'])
  const [, worker] = workers

  await t.test('answers updates meanwhile with 200 or 503, and with 200 from then on', async (t) => {
    t.strictSame(listStatuses(await updateAll(send, 1)), [200])
    let isOver = false
    const answers: Answer[] = []
    const load = (async () => {
      for (let quantity = 2; !isOver; quantity++) answers.push(...(await updateAll(send, quantity)))
    })()
    await arrange(kinds['a distributed table'])
    isOver = true
    await load
    const unexpected = answers.filter(({ status }) => status !== 200 && status !== 503)
    t.strictSame(unexpected, [], `${answers.length} updates`)
    t.strictSame(listStatuses(await updateAll(send, 777)), [200])
    t.strictSame(new Set(await listQuantities(send)), new Set([777]))
  })

  await t.test('lists and checks of readiness keep their connections', async (t) => {
    const count = async (): Promise<number> => {
      const [row] = await query("SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'")
      return Number(row?.['sessions'])
    }
    const before = await count()
    for (let check = 0; check < 4; check++) {
      for (let list = 0; list < 15; list++) await listQuantities(send)
      t.equal((await send('GET', '/readyz')).status, 200)
      // The next check would share this one.
      await setTimeout(1100)
    }
    const opened = (await count()) - before
    t.ok(opened < 12, `60 lists and 4 checks opened ${opened} connections`)
  })

  await t.test('a locked row does not delay the others', async (t) => {
    const release = await hold(t, owner, 'UPDATE inventory SET quantity = 99 WHERE pet_id = 1')
    const start = performance.now()
    const [locked, ...others] = pets.map((pet) =>
      send('PATCH', `/v1/inventory/${pet}`, json({ quantity: 2 })),
    )
    t.strictSame(listStatuses(await Promise.all(others)), [200])
    const longest = Math.round(performance.now() - start)
    // The locked one waits until the service's time limit of two seconds.
    t.ok(longest < 1900, `the others took up to ${longest} ms`)
    t.equal((await locked)?.status, 503, 'the update of the locked row is rejected in time')
    await release()
  })

  await t.test('an import whose commit is lost says that its outcome is unknown', async (t) => {
    const input = `petId,quantity\n${pets.map((pet) => `${pet},5\n`).join('')}`
    worker.losesCommits = true
    const outcome = await inventory(t, owner, `import - --rows ${PETS}`, { input })
    worker.losesCommits = false
    t.match(outcome, { code: 4, stdout: '' }, outcome.stderr)
    await eventually('Citus to finish the commit', async () => {
      const rows = await query('SELECT FROM inventory WHERE quantity = 5')
      return rows.length === PETS
    })
  })

  await t.test('the pets of one worker are served while the other one is away', async (t) => {
    await worker.kill()
    const placements = await query(
      `SELECT FROM generate_series(1, ${PETS}) n
       JOIN pg_dist_shard ON shardid = get_shard_id_for_distribution_column('inventory', n)
       JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
       WHERE nodeid = (SELECT min(nodeid) FROM pg_dist_node WHERE groupid > 0)`,
    )
    t.ok(placements.length > 0 && placements.length < PETS, `${placements.length} pets are on that one`)
    // The first statements on connections that were open have an outcome that nobody knows.
    const isServed = (answers: readonly Answer[]): boolean =>
      answers.filter(({ status }) => status === 200).length === placements.length
    await eventually('the pets of that worker to be served', async () => isServed(await updateAll(send, 2)))
    for (let quantity = 3; quantity < 8; quantity++) {
      const answers = await updateAll(send, quantity)
      t.ok(isServed(answers), `${placements.length} of ${PETS} updates were made`)
      t.strictSame(new Set(listStatuses(answers)), new Set([200, 503]))
    }
    t.equal((await send('GET', '/v1/inventory')).status, 503, 'a list needs both')
    await worker.start()
    await recovery('all updates to be served again', send, 9)
    t.strictSame(new Set(await listQuantities(send)), new Set([9]))
  })

  t.equal((await stop()).code, 0)
})
