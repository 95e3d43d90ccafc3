import t, { type Test } from 'tap'
import { type CitusCluster, startCitus } from '../support/citus.ts'
import { eventually } from '../support/eventually.ts'
import { type Answer, json, type Send } from '../support/http.ts'
import { type Outcome, type Program, startProgram } from '../support/program.ts'
import { startServer } from '../support/running-server.ts'

/** How many pets the tests update at once. */
const PETS = 64

/** How long an update of a row that nobody has locked may take beside one that is, in milliseconds. */
const BESIDE_LOCKED_MS = 1900

/** The ways in which Citus can keep the table. */
const kinds = {
  'a distributed table': "SELECT create_distributed_table('inventory', 'pet_id', shard_count => 2)",
  'a reference table': "SELECT create_reference_table('inventory')",
  'a local table that Citus knows': "SELECT citus_add_local_table_to_metadata('inventory')",
  'a local table': 'SELECT 1',
} as const

const DISTRIBUTE = kinds['a distributed table']

async function inventory(
  t: Test,
  cluster: CitusCluster,
  args: readonly string[],
  input?: string,
): Promise<Outcome> {
  const program = await startProgram(t, 'cli', {
    args: [...args],
    env: { DATABASE_URL: cluster.urlOf('owner') },
    ...(input === undefined ? {} : { input }),
  })
  return program.ended
}

async function succeed(t: Test, cluster: CitusCluster, args: readonly string[]): Promise<Outcome> {
  const outcome = await inventory(t, cluster, args)
  t.equal(outcome.code, 0, `inventory ${args.join(' ')}: ${outcome.stderr}`)
  return outcome
}

async function startService(t: Test, cluster: CitusCluster): Promise<{ server: Program; send: Send }> {
  const server = await startServer(t, { DATABASE_URL: cluster.urlOf('service') })
  return { server, send: server.send }
}

/** Has Citus keep the table in one of the `kinds`. Before 13.1, it does not pass on a privilege on a single column. */
async function arrange(cluster: CitusCluster, sql: string): Promise<void> {
  await cluster.query(`SET ROLE owner; GRANT UPDATE ON inventory TO service; ${sql}`)
}

/** A cluster with a table of that many pets, each with the quantity 0, which is distributed as `sql` says. */
async function startFilled(t: Test, sql: string): Promise<CitusCluster> {
  const cluster = await startCitus(t)
  await succeed(t, cluster, ['migrate', 'up', '--server-role', 'service'])
  await arrange(cluster, sql)
  await cluster.query(`INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, ${PETS}) n`)
  return cluster
}

const updateAll = (send: Send, quantity: number): Promise<Answer[]> =>
  Promise.all(
    Array.from({ length: PETS }, (_, index) =>
      send('PATCH', `/v1/inventory/${index + 1}`, json({ quantity })),
    ),
  )

async function quantities(send: Send): Promise<number[]> {
  const { status, text } = await send('GET', '/v1/inventory')
  if (status !== 200) throw new Error(`A list was answered with ${status}: ${text}`)
  return [...text.matchAll(/"quantity":(\d+)/g)].map(([, quantity]) => Number(quantity))
}

const statusesOf = (answers: readonly Answer[]): number[] => [...new Set(answers.map(({ status }) => status))]

for (const [kind, sql] of Object.entries(kinds)) {
  t.test(`${kind}: every command and every request`, async (t) => {
    const cluster = await startCitus(t)
    await succeed(t, cluster, ['migrate', 'up'])
    await succeed(t, cluster, ['migrate', 'down', '2', '--yes'])
    await succeed(t, cluster, ['migrate', 'up', '--server-role', 'service'])
    await arrange(cluster, sql)

    const load = async (mode: string, csv: string, ...options: string[]): Promise<string> => {
      const args = [
        'import',
        '-',
        '--rows',
        String(csv.split('\n').length - 1),
        '--allow-removals',
        '--mode',
        mode,
        ...options,
      ]
      const outcome = await inventory(t, cluster, args, `petId,quantity,status\n${csv}`)
      t.equal(outcome.code, 0, outcome.stderr)
      return outcome.stdout
    }
    t.equal(await load('upsert', '1,1,sold\n2,2,\n3,3,pending\n'), '3 added, 0 changed, 0 unchanged\n')
    t.equal(await load('upsert', '1,5,\n2,2,available\n4,4,\n'), '1 added, 1 changed, 1 unchanged\n')
    t.match(await load('replace', '4,9,\n', '--dry-run'), /: 0 added, 1 changed, 0 unchanged, 3 removed/)
    t.equal(await load('replace', '1,6,\n2,2,\n5,5,\n'), '1 added, 1 changed, 1 unchanged, 2 removed\n')
    const refused = await inventory(
      t,
      cluster,
      ['import', '-', '--rows', '3'],
      'petId,quantity\n1,1\n7,7\n7,7\n',
    )
    t.equal(refused.code, 3)
    t.match(refused.stderr, /line 4: petId 7 already occurs in line 3\n/)
    t.equal(
      (await succeed(t, cluster, ['export'])).stdout,
      'petId,quantity,status\n1,6,sold\n2,2,available\n5,5,available\n',
    )
    t.match((await succeed(t, cluster, ['status'])).stdout, /PostgreSQL \d/)
    const canRecord = kind.startsWith('a local table')
    const refusedTriggers = { code: 1, stderr: /The history cannot be changed: triggers are not supported/ }
    t.match(await inventory(t, cluster, ['history', 'on']), canRecord ? { code: 0 } : refusedTriggers)
    await succeed(t, cluster, ['keys', 'create', '--name', 'ops'])
    const key = (await succeed(t, cluster, ['keys', 'rotate', 'ops'])).stdout.trim()
    t.match((await succeed(t, cluster, ['keys', 'list'])).stdout, /ops/)

    const { server, send } = await startService(t, cluster)
    const authorization = { authorization: `Bearer ${key}` }
    t.equal((await send('GET', '/v1/inventory', { headers: authorization })).status, 200)
    t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
    const updates = [1, 2, 3, 4, 5, 6, 7, 8].map((quantity) =>
      send('PATCH', '/v1/inventory/1', json({ quantity })),
    )
    updates.push(send('PATCH', '/v1/inventory/2', json({ quantity: 7 })))
    for (const answer of await Promise.all(updates)) t.equal(answer.status, 200, answer.text)
    t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 20 }))).status, 200)
    t.equal((await send('PATCH', '/v1/inventory/6', json({ quantity: 1 }))).status, 404)
    const conditional = (pet: number, name: string, tag: string, quantity: number): Promise<Answer> => {
      const { headers, ...request } = json({ quantity })
      return send('PATCH', `/v1/inventory/${pet}`, { ...request, headers: { ...headers, [name]: tag } })
    }
    const decided = await Promise.all([
      conditional(1, 'if-match', '"20-sold"', 21),
      conditional(2, 'if-match', '"1-sold"', 1),
      conditional(5, 'if-none-match', '"5-available"', 1),
      conditional(6, 'if-match', '"1-sold"', 1),
    ])
    t.strictSame(
      decided.map(({ status }) => status),
      [200, 412, 412, 404],
    )
    const list = await send('GET', '/v1/inventory')
    t.equal(
      list.text,
      '[{"petId":1,"quantity":21,"status":"sold"},{"petId":2,"quantity":7,"status":"available"},{"petId":5,"quantity":5,"status":"available"}]',
    )
    const history = (await succeed(t, cluster, ['history', '2', '--json'])).stdout
    t.equal(history.match(/"newQuantity":7,/g)?.length ?? 0, canRecord ? 1 : 0)
    const headers = { 'if-none-match': list.headers.etag }
    t.equal((await send('GET', '/v1/inventory', { headers })).status, 304)
    server.process.kill('SIGTERM')
    const { code, stdout } = await server.ended
    t.equal(code, 0)
    t.notMatch(stdout, /"level":[56]0/)
  })
}

t.test('one locked row does not hold up the others of its batch', async (t) => {
  const cluster = await startFilled(t, DISTRIBUTE)
  const { send } = await startService(t, cluster)
  t.strictSame(statusesOf(await updateAll(send, 1)), [200])
  const holder = cluster.query(
    'BEGIN; UPDATE inventory SET quantity = 99 WHERE pet_id = 1; SELECT pg_sleep(3); ROLLBACK',
  )
  await eventually('the row to be locked', async () => {
    const rows = await cluster.query("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    return rows.length > 0
  })
  const waits: number[] = []
  const answers = await Promise.all(
    Array.from({ length: PETS }, async (_, index) => {
      const start = performance.now()
      const answer = await send('PATCH', `/v1/inventory/${index + 1}`, json({ quantity: 2 }))
      if (index > 0) waits.push(performance.now() - start)
      return answer
    }),
  )
  const [locked, ...others] = answers
  t.equal(locked?.status, 503, 'the update of the locked row is rejected in time')
  t.strictSame(statusesOf(others), [200])
  const longest = Math.round(Math.max(...waits))
  t.ok(longest < BESIDE_LOCKED_MS, `the others took up to ${longest} ms`)
  await holder
})

t.test('an update of a reference table whose commit is lost on one server is not acknowledged', async (t) => {
  const cluster = await startFilled(t, kinds['a reference table'])
  const { send } = await startService(t, cluster)
  t.strictSame(statusesOf(await updateAll(send, 1)), [200])
  let unknown = 0
  for (let quantity = 2; quantity < 7; quantity++) {
    cluster.workers[1].loseCommits()
    const answers = await updateAll(send, quantity)
    const listed = await quantities(send)
    cluster.workers[1].keepCommits()
    for (const [index, { status, text }] of answers.entries()) {
      if (status === 200)
        t.equal(listed[index], quantity, `pet ${index + 1}: an acknowledged update is listed`)
      else t.equal(status, 503, text)
    }
    unknown += answers.filter(({ status }) => status === 503).length
    // Citus finishes what is prepared; until then those rows are locked.
    await eventually(
      'Citus to finish the commits',
      async () => statusesOf(await updateAll(send, 1)).join() === '200',
    )
  }
  t.ok(unknown > 0, `${unknown} updates were answered with a 503`)
})

t.test('a lost commit of an import is reported as unknown', async (t) => {
  const cluster = await startFilled(t, DISTRIBUTE)
  const lines = Array.from({ length: PETS }, (_, index) => `${index + 1},5\n`)
  cluster.workers[1].loseCommits()
  const outcome = await inventory(
    t,
    cluster,
    ['import', '-', '--rows', String(PETS)],
    `petId,quantity\n${lines.join('')}`,
  )
  cluster.workers[1].keepCommits()
  t.match(outcome, { code: 4, stdout: '' }, outcome.stderr)
  await eventually('Citus to finish the commit', async () => {
    const rows = await cluster.query('SELECT FROM inventory WHERE quantity = 5')
    return rows.length === PETS
  })
})

t.test('the table is distributed while the service runs', async (t) => {
  const cluster = await startFilled(t, 'SELECT 1')
  const { server, send } = await startService(t, cluster)
  t.strictSame(statusesOf(await updateAll(send, 1)), [200])
  let isOver = false
  const answers: Answer[] = []
  const load = (async () => {
    for (let quantity = 2; !isOver; quantity++) answers.push(...(await updateAll(send, quantity)))
  })()
  await arrange(cluster, DISTRIBUTE)
  isOver = true
  await load
  const unexpected = answers.filter(({ status }) => status !== 200 && status !== 503)
  t.strictSame(
    unexpected.map(({ text }) => text),
    [],
    `${answers.length} updates`,
  )
  t.strictSame(statusesOf(await updateAll(send, 777)), [200])
  t.strictSame(new Set(await quantities(send)), new Set([777]))
  t.equal((await send('GET', '/readyz')).status, 200)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
})

t.test('a worker dies and comes back: the pets of the other one are served all the time', async (t) => {
  const cluster = await startFilled(t, DISTRIBUTE)
  const { send } = await startService(t, cluster)
  t.strictSame(statusesOf(await updateAll(send, 1)), [200])
  await cluster.workers[1].kill()
  const placements = await cluster.query(
    `SELECT FROM generate_series(1, ${PETS}) n
     JOIN pg_dist_shard ON shardid = get_shard_id_for_distribution_column('inventory', n)
     JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
     WHERE nodeid = (SELECT min(nodeid) FROM pg_dist_node WHERE groupid > 0)`,
  )
  t.ok(placements.length > 0 && placements.length < PETS, `${placements.length} pets are on the other one`)
  // The first statements on connections that were open have an outcome that nobody knows.
  const isServed = (answers: readonly Answer[]): boolean =>
    answers.filter(({ status }) => status === 200).length === placements.length
  await eventually('the pets of the other worker to be served', async () =>
    isServed(await updateAll(send, 2)),
  )
  for (let quantity = 3; quantity < 8; quantity++) {
    const answers = await updateAll(send, quantity)
    t.ok(isServed(answers), `${placements.length} of ${PETS} updates were made`)
    t.strictSame(new Set(statusesOf(answers)), new Set([200, 503]))
  }
  t.equal((await send('GET', '/v1/inventory')).status, 503, 'a list needs both')
  await cluster.workers[1].start()
  await eventually(
    'all updates to be served again',
    async () => statusesOf(await updateAll(send, 9)).join() === '200',
  )
  t.strictSame(new Set(await quantities(send)), new Set([9]))
})
