import { readFile } from 'node:fs/promises'
import t from 'tap'
import { probeLimits } from '../../src/database/time-limits.ts'
import { endlessLimits, startApp, startService } from '../support/app.ts'
import { succeed } from '../support/command.ts'
import { testDatabase, testRole, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { createSender, isError } from '../support/http.ts'
import { findSamples } from '../support/metrics.ts'
import { countingFilter, startRelay } from '../support/relay.ts'

t.test('health checks need no key, no cache and no connection of the pool', async (t) => {
  const env = { DATABASE_POOL_SIZE: '4' }
  const { port, database, ...app } = await startService(t, [], { env, timings: endlessLimits })
  const send = createSender(port)
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const waiting = Promise.all([app.send('GET', '/v1/inventory'), app.updateAll(3, 5)])
  await waitForLocks(database, 3)
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  for (const [method, path, text] of [
    ['GET', '/livez', `{"status":"ok","version":"${version}"}`],
    ['GET', '/readyz', '{"status":"ready"}'],
    ['HEAD', '/readyz', ''],
  ] as const) {
    const answer = await send(method, path)
    t.strictSame([answer.status, answer.text, answer.headers['cache-control']], [200, text, 'no-store'], path)
  }
  await release()
  await waiting
})

const END_SESSIONS = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1'

t.test('/readyz, the metrics and the log say whether the service is ready, and why not', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  const outage = await startRelay(t, role.toUrl(database.url))
  const { send, log, scrape } = await startApp(t, outage.url, { timings: { probe: probeLimits } })
  /** Waits until the check has a result: ready, or this kind of reason, in these words. */
  const see = async (kind?: string, words = /./): Promise<void> => {
    const answer = await eventually(kind ?? 'ready', async () => {
      const reasons = findSamples(await scrape(), 'inventory_not_ready').filter(({ value }) => value === 1)
      const kinds = reasons.map(({ labels }) => labels['reason'])
      const found = await send('GET', '/readyz')
      return kinds.join() === (kind ?? '') && found.status === (kind === undefined ? 200 : 503) && found
    })
    t.equal(answer.headers['cache-control'], 'no-store')
    if (kind === undefined) return
    isError(t, answer, 503, 'service_unavailable', kind)
    t.match(JSON.parse(answer.text).message, words)
    t.equal((await send('GET', '/livez')).status, 200)
  }
  await see('schema_behind', /schema is behind.*create-inventory.*inventory migrate up/)
  await succeed(t, database.url, `migrate up --server-role ${role.name}`)
  await see()
  for (const privilege of ['SELECT ON pgmigrations', 'UPDATE (quantity) ON inventory']) {
    await database.query(`REVOKE ${privilege} FROM ${role.name}`)
    await see('privileges')
    await database.query(`GRANT ${privilege} TO ${role.name}`)
    await see()
  }
  const before = log.length
  outage.stall()
  await see('unreachable', /^The database cannot be reached\.$/)
  await outage.restore()
  await see()
  const messages = log.slice(before).map(({ msg }) => String(msg))
  const changes = messages.filter((msg) => /ready/.test(msg))
  // On a busy machine, there may be others in between.
  t.strictSame([changes[0], changes.at(-1)], ['not ready: The database cannot be reached.', 'ready again'])
  // For new sessions alone, as the setting counts from a session's start.
  await database.query(`ALTER ROLE ${role.name} SET default_transaction_read_only = on`)
  await database.query(END_SESSIONS, [role.name])
  await see('read_only')
})

t.test('health checks and a scrape of the metrics at the same time share one check', async (t) => {
  const database = await testDatabase(t)
  const plans = countingFilter('EXPLAIN')
  const way = await startRelay(t, database.url, { towardsDatabase: plans.filter })
  const { send, scrape } = await startApp(t, way.url)
  const ofStart = plans.count
  t.ok(ofStart > 0)
  await Promise.all([scrape(), ...Array.from({ length: 20 }, () => send('GET', '/readyz'))])
  t.ok(plans.count <= 2 * ofStart, `${plans.count} statements, ${ofStart} of them at the start`)
})

t.test('the service stays ready while PostgreSQL has no connection left for a check', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,0,available'] })
  await database.query(`GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  const { send, update, log } = await startApp(t, role.toUrl(database.url))
  t.equal((await update(1, 5)).status, 200)
  await database.query(`ALTER ROLE ${role.name} CONNECTION LIMIT 0`)
  // The connection for readiness and keys is replaced every few seconds.
  await eventually('a new connection to be refused', async () => {
    if ((await update(1, 5)).status !== 200) t.fail('an update was refused')
    return log.some(({ msg }) => /^the API keys cannot be read/.test(String(msg)))
  })
  t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
  await database.query(END_SESSIONS, [role.name])
  await eventually('the service to be not ready', async () => (await send('GET', '/readyz')).status === 503)
})
