import { readFile } from 'node:fs/promises'
import t from 'tap'
import { longTimings, startApp, startService } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

t.test('health checks need no key, and their responses are never cached', async (t) => {
  const { port } = await startService(t)
  const send = callerOf(port)
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  for (const [method, path, text] of [
    ['GET', '/livez', `{"status":"ok","version":"${version}"}`],
    ['GET', '/readyz', '{"status":"ready"}'],
    ['HEAD', '/readyz', ''],
  ] as const) {
    const answer = await send(method, path)
    t.strictSame([answer.status, answer.text, answer.headers['cache-control']], [200, text, 'no-store'])
  }
})

t.test(
  'the service is live but not ready during an outage of the database, and ready after it',
  async (t) => {
    const database = await testDatabase(t)
    const outage = await startRelay(t, database.url)
    const { send, log } = await startApp(t, outage.url)
    const readyAfterKeep = async (): Promise<number> => {
      await new Promise((resolve) => setTimeout(resolve, 1100))
      return (await send('GET', '/readyz')).status
    }
    t.equal((await send('GET', '/readyz')).status, 200)
    outage.stall()
    t.equal(await readyAfterKeep(), 503)
    t.equal((await send('GET', '/livez')).status, 200)
    await outage.restore()
    t.equal(await readyAfterKeep(), 200)
    t.strictSame(
      log.map((line) => line['msg']).filter((message) => /ready/.test(String(message))),
      ['not ready: The database cannot be reached.', 'ready again'],
    )
  },
)

t.test('the service is not ready while the schema is behind, and says why', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const { send } = await startApp(t, database.url)
  const answer = await send('GET', '/readyz')
  isError(t, answer, 503, 'service_unavailable')
  t.equal(answer.headers['cache-control'], 'no-store')
  t.match(JSON.parse(answer.text).message, /schema is behind.*create-inventory.*inventory migrate up/)
})

t.test('the service stays ready while all connections of the pool are busy', async (t) => {
  const { send, database } = await startService(t, [], { env: { DATABASE_POOL_SIZE: '4' } })
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const waiting = send('GET', '/v1/inventory')
  t.equal((await send('GET', '/readyz')).status, 200)
  await release()
  t.equal((await waiting).status, 200)
})

t.test('the service stays ready while PostgreSQL has no connection left for a check', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(`GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  await addEntries(database, [['1', 0, 'available']])
  const { send, log } = await startApp(t, role.urlOf(database.url), { timings: longTimings })
  const update = async (): Promise<number> =>
    (await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))).status
  t.equal(await update(), 200)
  await database.query(`ALTER ROLE ${role.name} CONNECTION LIMIT 0`)
  // The connection for readiness and keys is replaced every few seconds.
  await eventually('a new connection to be refused', async () => {
    if ((await update()) !== 200) t.fail('an update was refused')
    return log.some(({ msg }) => /^the API keys cannot be read/.test(String(msg))) ? true : undefined
  })
  t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
  await database.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1', [
    role.name,
  ])
  const away = await eventually('the service to be not ready', async () => {
    const answer = await send('GET', '/readyz')
    return answer.status === 503 ? answer : undefined
  })
  t.match(away.text, 'The database cannot be reached.')
})
