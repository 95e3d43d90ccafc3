import { chmod } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { startLoad } from '../support/load.ts'
import { outageOf } from '../support/outage.ts'
import { portOf, startProgram, temporaryFolder } from '../support/program.ts'

const key = 'a-key-for-tests-0123456789abcdefghijklm'
const headers = { authorization: `Bearer ${key}` }

t.test(
  'several workers share one port, and a list through one shows what another has acknowledged',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [['1', 0, 'available']])
    const server = await startProgram(t, 'server', {
      env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
    })
    const send = callerOf(await portOf(server), headers)
    await server.output(/"worker":2[^\n]*listening/i)
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
    server.process.kill('SIGTERM')
    const { code, stdout } = await server.ended
    t.equal(code, 0)
    const workers = new Set(
      Array.from(stdout.matchAll(/"worker":(\d)[^\n]*"msg":"request"/g), ([, worker]) => worker),
    )
    t.strictSame([...workers].sort(), ['1', '2'], 'both have answered requests')
  },
)

t.test('a worker that is killed is replaced, and only its own requests fail', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const send = callerOf(await portOf(server), headers)
  await server.output(/"worker":2[^\n]*listening/i)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  process.kill(Number(pid), 'SIGKILL')
  await server.output(/worker exited, restarting/)
  for (let round = 0; round < 10; round++) t.equal((await send('GET', '/v1/inventory')).status, 200)
  await server.output(/"worker":3[^\n]*listening/i)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
})

t.test('a worker that is killed under load takes only its own requests with it', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const port = await portOf(server)
  await server.output(/"worker":2[^\n]*listening/i)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  const load = startLoad(t, { ports: [port], clients: 16, apiKey: key, pets: [1] })
  await load.served(500)
  process.kill(Number(pid), 'SIGKILL')
  await server.output(/"worker":3[^\n]*listening/i)
  await load.served(500)
  await load.stop()
  server.process.kill('SIGTERM')
  const { stdout } = await server.ended

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

t.test('a worker that is killed leaves no new connection without an end', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const port = await portOf(server)
  await server.output(/"worker":2[^\n]*listening/i)
  const load = startLoad(t, { ports: [port], clients: 24, apiKey: key, pets: [1], keepAlive: false })
  for (const worker of [2, 3, 4]) {
    const [, pid] = await server.output(new RegExp(`"pid":(\\d+),"worker":${worker}[^\\n]*listening`, 'i'))
    await load.served(300)
    process.kill(Number(pid), 'SIGKILL')
  }
  await load.served(300)
  const ended = await Promise.race([load.stop().then(() => true), setTimeout(20_000, false)])
  t.ok(ended, 'every client has got an answer or an end')
})

t.test('a signal lets every worker answer what it has in flight', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const send = callerOf(await portOf(server), headers)
  await server.output(/"worker":2[^\n]*listening/i)
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const waiting = Array.from({ length: 6 }, () => send('GET', '/v1/inventory'))
  await setTimeout(300)
  server.process.kill('SIGTERM')
  await setTimeout(300)
  await release()
  for (const { status } of await Promise.all(waiting)) t.equal(status, 200)
  t.equal((await server.ended).code, 0)
})

t.test('every worker gives the same answer about readiness, through an outage and after it', async (t) => {
  const database = await testDatabase(t)
  const outage = await outageOf(t, database.url)
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: outage.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  // Each probe has a connection of its own, and the workers get them in turn.
  const send = callerOf(await portOf(server))
  await server.output(/"worker":2[^\n]*listening/i)
  const changeTo = async (status: number): Promise<void> => {
    for (let tries = 0; (await send('GET', '/readyz')).status !== status; tries++) {
      if (tries === 500) throw new Error(`/readyz does not become ${status}`)
      await setTimeout(20)
    }
  }
  for (let round = 0; round < 3; round++) {
    await changeTo(200)
    for (let probe = 0; probe < 6; probe++) t.equal((await send('GET', '/readyz')).status, 200)
    outage.stall()
    await changeTo(503)
    for (let probe = 0; probe < 6; probe++) t.equal((await send('GET', '/readyz')).status, 503)
    await outage.restore()
  }
  await changeTo(200)
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  process.kill(Number(pid), 'SIGKILL')
  await server.output(/worker exited, restarting/)
  for (let probe = 0; probe < 6; probe++)
    t.equal((await send('GET', '/readyz')).status, 200, 'the other worker serves')
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
})

t.test('a worker that is not ready does not join one that is until it is ready', async (t) => {
  const database = await testDatabase(t)
  const outage = await outageOf(t, database.url)
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: outage.url, API_KEYS: key, PORT: '0', WEB_CONCURRENCY: '2' },
  })
  const send = callerOf(await portOf(server))
  await server.output(/"worker":2[^\n]*listening/i)
  outage.refuseNew()
  const [, pid] = await server.output(/"pid":(\d+),"worker":1[^\n]*listening/i)
  process.kill(Number(pid), 'SIGKILL')
  await server.output(/"worker":3[^\n]*not ready/)
  for (let probe = 0; probe < 6; probe++) t.equal((await send('GET', '/readyz')).status, 200)
  await outage.restore()
  await server.output(/"worker":3[^\n]*listening/i)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
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

t.test('workers that cannot start say so once', async (t) => {
  const database = await testDatabase(t)
  const url = new URL(database.url)
  url.pathname = '/no_such_database'
  const server = await startProgram(t, 'server', { env: { DATABASE_URL: url.href, WEB_CONCURRENCY: '3' } })
  const { code, stderr } = await server.ended
  t.equal(code, 1)
  t.equal(stderr.match(/does not exist/g)?.length, 1)
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
