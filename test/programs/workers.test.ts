import { chmod } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
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
  await server.output(/a worker has ended; another takes its place/)
  for (let round = 0; round < 10; round++) t.equal((await send('GET', '/v1/inventory')).status, 200)
  await server.output(/"worker":3[^\n]*listening/i)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
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
