import { once } from 'node:events'
import { access, chmod, copyFile, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { addEntries, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import { startLoad } from '../support/load.ts'
import { type Outage, outageOf } from '../support/outage.ts'
import { type Program, portOf, startProgram, temporaryFolder } from '../support/program.ts'
import { openRaw, startUpdate } from '../support/raw.ts'

const key = 'a-key-for-tests-0123456789abcdefghijklm'
const headers = { authorization: `Bearer ${key}` }

/** The service with two workers that serve one entry of pet 1. */
interface Workers {
  readonly server: Program
  readonly port: number
  readonly database: TestDatabase
  /** The way of the workers to the database. */
  readonly outage: Outage
  /** Kills a worker by its number, which no other worker gets. */
  kill(worker: number): Promise<void>
}

async function startWorkers(t: Test): Promise<Workers> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const outage = await outageOf(t, database.url)
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: outage.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const port = await portOf(server)
  await server.output(/"worker":2[^\n]*listening/i)
  return {
    server,
    port,
    database,
    outage,
    async kill(worker) {
      const [, pid] = await server.output(new RegExp(`"pid":(\\d+),"worker":${worker}[^\\n]*listening`, 'i'))
      process.kill(Number(pid), 'SIGKILL')
    },
  }
}

/** Has the service stop, and returns what it has written. */
async function stop(t: Test, server: Program): Promise<string> {
  server.process.kill('SIGTERM')
  const { code, stdout } = await server.ended
  t.equal(code, 0)
  return stdout
}

t.test(
  'several workers share one port, and a list through one shows what another has acknowledged',
  async (t) => {
    const { server, port, database } = await startWorkers(t)
    const send = callerOf(port, headers)
    for (let quantity = 1; quantity <= 40; quantity++) {
      t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity }))).status, 200)
      t.equal(
        (await send('GET', '/v1/inventory')).text,
        `[{"petId":1,"quantity":${quantity},"status":"available"}]`,
      )
    }
    const connections = await database.query(
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'petstore-inventory' AND datname = current_database()",
    )
    t.ok(
      Number(connections[0]?.['count']) <= 12,
      'at most 10 connections to serve requests and one for each probe',
    )

    const inFlight = await Promise.all(Array.from({ length: 6 }, () => startUpdate(port, key)))
    const stopped = stop(t, server)
    await server.output(/"SIGTERM: stopping"/)
    for (const { status } of await Promise.all(inFlight.map((update) => update.finish())))
      t.equal(status, 200, 'a signal lets a request in flight be answered')
    const workers = new Set(
      Array.from((await stopped).matchAll(/"worker":(\d)[^\n]*"msg":"request"/g), ([, worker]) => worker),
    )
    t.strictSame([...workers].sort(), ['1', '2'], 'both have answered requests')
  },
)

t.test('a worker that is killed is replaced, and takes only its own requests with it', async (t) => {
  const { server, port, kill } = await startWorkers(t)
  const load = startLoad(t, { ports: [port], clients: 16, apiKey: key, pets: [1] })
  await load.served(500)
  await kill(1)
  await server.output(/worker exited, restarting/)
  await server.output(/"worker":3[^\n]*listening/i)
  await load.served(500)
  await load.stop()
  const stdout = await stop(t, server)

  const workerOf = new Map<string, string>()
  for (const [, worker = '', id = ''] of stdout.matchAll(/"worker":(\d+),"requestId":"(\d+\.\d+)"/g))
    workerOf.set(id, worker)
  t.ok(workerOf.size > 900, 'the log says who has served whom')
  const lost = new Map<string, number>()
  for (const { id, answer } of load.failures) {
    t.equal(answer, undefined, 'the connection broke')
    const [client = '', count] = id.split('.')
    const earlier = Array.from({ length: Number(count) }, (_, index) => workerOf.get(`${client}.${index}`))
    if (!lost.has(client)) t.equal(earlier.findLast(Boolean) ?? '1', '1', 'it was one to the killed worker')
    lost.set(client, (lost.get(client) ?? 0) + 1)
  }
  // A second time for a client that was being given to the killed worker as it came back.
  for (const times of lost.values()) t.ok(times <= 2)
  t.comment(`${load.successes} requests were served, ${load.failures.length} were lost`)
})

t.test('a worker that is killed leaves no new connection unanswered', async (t) => {
  const { port, kill } = await startWorkers(t)
  const load = startLoad(t, { ports: [port], clients: 24, apiKey: key, pets: [1], keepAlive: false })
  for (const worker of [2, 3]) {
    await load.served(200)
    await kill(worker)
  }
  await load.served(200)
  let hasEnded = false
  const ended = load.stop().then(() => (hasEnded = true))
  await until('every client to get an answer or an end', () => hasEnded)
  await ended
})

t.test('all workers give the same answer about readiness, through an outage and after it', async (t) => {
  const { server, port, outage, kill } = await startWorkers(t)
  // Each probe has a connection of its own, and the workers get them round-robin.
  const send = callerOf(port)
  const answers = async (status: number, why: string): Promise<void> => {
    for (let probe = 0; probe < 6; probe++) t.equal((await send('GET', '/readyz')).status, status, why)
  }
  const changeTo = async (status: number): Promise<void> => {
    await eventually(`/readyz to become ${status}`, async () =>
      (await send('GET', '/readyz')).status === status ? true : undefined,
    )
  }
  for (let round = 0; round < 2; round++) {
    await changeTo(200)
    await answers(200, 'while the database is there')
    outage.stall()
    await changeTo(503)
    await answers(503, 'while it is away')
    await outage.restore()
  }
  await changeTo(200)
  await kill(1)
  await server.output(/worker exited, restarting/)
  await answers(200, 'the other worker serves')
  await stop(t, server)
})

t.test(
  'a readiness check that fails unexpectedly makes the service not ready, and ends no worker',
  async (t) => {
    const { server, port, database } = await startWorkers(t)
    const send = callerOf(port)
    await database.query('ALTER TABLE pgmigrations RENAME TO intact')
    await database.query(
      "CREATE FUNCTION damaged() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'invalid page in block 0' USING ERRCODE = 'XX001'; END $$",
    )
    await database.query('CREATE VIEW pgmigrations AS SELECT damaged() AS name')
    const answer = await eventually('/readyz to say that the check fails', async () => {
      const latest = await send('GET', '/readyz')
      return latest.text.includes('cannot be checked') ? latest : undefined
    })
    t.equal(answer.status, 503)
    await database.query('DROP VIEW pgmigrations')
    await database.query('ALTER TABLE intact RENAME TO pgmigrations')
    await eventually('/readyz to become 200', async () =>
      (await send('GET', '/readyz')).status === 200 ? true : undefined,
    )
    const stdout = await stop(t, server)
    t.match(stdout, /"message":"invalid page in block 0"[^\n]*not ready: The database cannot be checked/)
    t.notMatch(stdout, /worker exited/)
  },
)

t.test('a worker that is stuck does not hold up the answer about readiness', async (t) => {
  const { server, port } = await startWorkers(t)
  // One connection to each worker.
  const connections = await Promise.all(Array.from({ length: 2 }, () => openRaw(port)))
  const ask = 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n'
  for (const { socket } of connections) {
    socket.write(ask)
    t.match(String(await once(socket, 'data')), /^HTTP\/1\.1 200 /, 'both have reported')
  }
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  let isAwake = false
  process.kill(Number(pid), 'SIGSTOP')
  t.teardown(() => {
    // Left stopped, it would outlive a test that fails here.
    if (!isAwake) process.kill(Number(pid), 'SIGKILL')
  })
  // Until no result from before is shared.
  await setTimeout(1500)
  const answers: string[] = []
  for (const { socket } of connections) {
    socket.once('data', (chunk) => answers.push(String(chunk)))
    socket.write(ask)
  }
  await until('the answer of the other worker', () => answers.length > 0)
  t.match(answers, [/^HTTP\/1\.1 200 /], 'by the last report of the stuck one')
  process.kill(Number(pid), 'SIGCONT')
  isAwake = true
  await until('the answer of the worker that was stuck', () => answers.length > 1)
  await stop(t, server)
})

t.test('a worker stops in good order while the primary hangs', async (t) => {
  const { server } = await startWorkers(t)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  server.process.kill('SIGSTOP')
  process.kill(Number(pid), 'SIGTERM')
  await server.output(/("level":50[^\n]*"worker":1|"worker":1[^\n]*"stopped")/)
  server.process.kill('SIGCONT')
  await server.output(/"worker":1,"code":0,[^\n]*worker exited, restarting/)
  await stop(t, server)
})

t.test('a worker that is not ready does not join one that is until it is ready', async (t) => {
  const { server, port, outage, kill } = await startWorkers(t)
  const send = callerOf(port)
  // The other worker replaces the connection of its probe every few seconds.
  const [, other] = await server.output(/"pid":(\d+),"worker":2[^\n]*listening/i)
  outage.refuseNew(Number(other))
  await kill(1)
  await server.output(/"worker":3[^\n]*not ready/)
  for (let probe = 0; probe < 6; probe++) t.equal((await send('GET', '/readyz')).status, 200)
  await outage.restore()
  await server.output(/"worker":3[^\n]*listening/i)
  await stop(t, server)
})

/** Starts the service with a Node.js of its own, which is away when its first worker is to be replaced. */
async function startReplaceable(t: Test): Promise<{ server: Program; node: string }> {
  const database = await testDatabase(t)
  const folder = await temporaryFolder(t)
  const node = path.join(folder, 'node')
  await copyFile(process.execPath, node)
  const server = await startProgram(t, 'server', {
    node,
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  await server.output(/"worker":2[^\n]*listening/i)
  await rename(node, `${node}.away`)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  process.kill(Number(pid), 'SIGKILL')
  return { server, node }
}

t.test('a worker that the system cannot start is started once it can', async (t) => {
  const { server, node } = await startReplaceable(t)
  await server.output(/ENOENT[^\n]*worker could not be started, trying again[\s\S]*trying again/)
  await rename(`${node}.away`, node)
  await server.output(/"worker":(?![12]\b)\d+[^\n]*listening/i)
  await stop(t, server)
})

t.test('a worker that the system cannot start delays no shutdown, and the log says why', async (t) => {
  const { server } = await startReplaceable(t)
  await server.output(/ENOENT[^\n]*worker could not be started, trying again/)
  t.match(await stop(t, server), /"msg":"stopped"/)
})

t.test('a signal while workers are starting ends all of them', async (t) => {
  const database = await testDatabase(t)
  const server = await startProgram(t, 'server', {
    env: {
      DATABASE_URL: database.url,
      API_KEYS: key,
      PORT: '0',
      WEB_CONCURRENCY: '4',
    },
  })
  await server.output(/"worker":1[^\n]*listening/i)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
})

t.test('a worker that is already stopping answers what it has when the service stops, too', async (t) => {
  const { server, port } = await startWorkers(t)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  const inFlight = await Promise.all(Array.from({ length: 2 }, () => startUpdate(port, key)))
  process.kill(Number(pid), 'SIGTERM')
  await server.output(/"worker":1[^\n]*"SIGTERM: stopping"/)
  // Any sooner, it would be the same signal, sent twice.
  await setTimeout(500)
  const stopped = stop(t, server)
  await server.output(/"worker":2[^\n]*"SIGTERM: stopping"/)
  const answers = await Promise.all(inFlight.map((update) => update.finish()))
  for (const { status } of answers) t.equal(status, 200)
  t.match(await stopped, /"worker":1[^\n]*"stopped"/)
})

t.test('a worker that is stuck does not outlive the service', async (t) => {
  const { server } = await startWorkers(t)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  let hasEnded = false
  t.teardown(() => {
    if (!hasEnded) process.kill(Number(pid), 'SIGKILL')
  })
  process.kill(Number(pid), 'SIGSTOP')
  server.process.kill('SIGTERM')
  await server.output(/"SIGTERM: stopping"/)
  // At once, it would be taken for the same signal, sent twice.
  await setTimeout(500)
  server.process.kill('SIGTERM')
  // The worker has the same standard output, so that this waits for both.
  const ended = server.ended.then((outcome) => {
    hasEnded = true
    return outcome
  })
  await until('both processes to end', () => hasEnded)
  t.equal((await ended).code, 1)
})

t.test('workers that cannot start say so once', async (t) => {
  const database = await testDatabase(t)
  const url = new URL(database.url)
  url.pathname = '/no_such_database'
  const server = await startProgram(t, 'server', { env: { DATABASE_URL: url.href, WEB_CONCURRENCY: '3' } })
  const { code, stderr } = await server.ended
  t.equal(code, 1)
  t.equal(stderr.match(/does not exist/g)?.length, 1)
})

t.test('a worker that is killed before it listens ends the start with a message', async (t) => {
  const killed = `import cluster from 'node:cluster'; if (cluster.isWorker) process.kill(process.pid, 'SIGKILL')`
  const server = await startProgram(t, 'server', {
    env: {
      DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
      PORT: '0',
      WEB_CONCURRENCY: '2',
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(killed)}`,
    },
  })
  t.match(await server.ended, {
    code: 1,
    stderr:
      /^petstore-inventory: A worker process was ended by SIGKILL before it could serve\. [^\n]*memory\.\n$/,
  })
})

t.test('without a database, workers share the embedded one and its key', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0', WEB_CONCURRENCY: '2' } })
  const [, local = ''] = await server.output(/Authorization: Bearer (\S+)'[\s\S]*Ctrl-C stops both/)
  const send = callerOf(await portOf(server), { authorization: `Bearer ${local}` })
  for (let round = 0; round < 6; round++) t.equal((await send('GET', '/v1/inventory')).status, 200)
  server.process.kill('SIGINT')
  t.equal((await server.ended).code, 0)
})

t.test('without a database, workers accept the keys of API_KEYS_FILE', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  await writeFile(path.join(cwd, 'keys'), `ops:${key}\n`)
  const server = await startProgram(t, 'server', {
    cwd,
    env: { PORT: '0', WEB_CONCURRENCY: '2', API_KEYS_FILE: 'keys' },
  })
  await server.output(/Ctrl-C stops both/)
  const send = callerOf(await portOf(server), headers)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  await stop(t, server)
})

t.test('a worker that dies during a shutdown leaves no database running', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0', WEB_CONCURRENCY: '2' } })
  await server.output(/Ctrl-C stops both/)
  const running = path.join(cwd, '.data', 'postgres', 'data', 'postmaster.pid')
  await access(running)
  server.process.kill('SIGTERM')
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*"SIGTERM: stopping"/)
  process.kill(Number(pid), 'SIGKILL')
  t.equal((await server.ended).code, 1)
  await t.rejects(access(running), { code: 'ENOENT' })
})
