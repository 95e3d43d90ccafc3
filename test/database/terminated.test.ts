import t, { type Test } from 'tap'
import {
  addMany,
  findSessions,
  type TestDatabase,
  testDatabase,
  waitForSessions,
} from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Answer, json, type Send } from '../support/http.ts'
import { startLoad } from '../support/load.ts'
import { connectToMetrics, total } from '../support/metrics.ts'
import { type RunningServer, startServer } from '../support/program.ts'

/** One connection for lists, three for updates, and one for readiness and keys. */
const CONNECTIONS = 5

const OF_SERVICE = "application_name = 'petstore-inventory server'"

const update = (send: Send, petId: number, quantity = 5): Promise<Answer> =>
  send('PATCH', `/v1/inventory/${petId}`, json({ quantity }))

/** Ends the server's side of the service's connections that are in that state, and waits until it is gone. */
async function terminate(database: TestDatabase, state: string): Promise<void> {
  const sessions = await findSessions(database, `${OF_SERVICE} AND ${state}`)
  const isEnded = `pid = ANY ('{${sessions.map(({ pid }) => pid)}}'::integer[])`
  await database.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${isEnded}`)
  await waitForSessions(database, isEnded, 0)
}

/** Asserts that updates, lists and readiness are served, that no connection is lost for good, and that there are no others. */
async function hasAllConnections(t: Test, database: TestDatabase, server: RunningServer): Promise<void> {
  const { send } = server
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 1')
  const waiting = update(send, 1)
  await waitForSessions(database, "wait_event_type = 'Lock'")
  t.equal((await update(send, 3)).status, 200, 'an update passes the one that waits')
  await release()
  t.equal((await waiting).status, 200)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/readyz')).status, 200)
  // A connection that is never given back counts as used for ever, and takes the place of another one.
  const metrics = await connectToMetrics(server)
  await eventually('every connection to be given back', async () => {
    const state = { db_client_connection_state: 'used' }
    return total(await metrics.scrape(), 'db_client_connection_count', state) === 0
  })
  const open = await findSessions(database, OF_SERVICE)
  t.ok(open.length <= CONNECTIONS, `${open.length} connections`)
  t.equal(server.process.exitCode ?? server.process.signalCode, null, 'it is the same process')
}

t.test('the service survives terminated connections', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 3)
  // As few connections as it can have, so that a single one that is lost for good is missed.
  const env = { DATABASE_POOL_SIZE: '4', METRICS_PORT: '0' }
  const service = await startServer(t, { DATABASE_URL: database.url, ...env })
  await hasAllConnections(t, database, service)

  await t.test('anything, thirty times under load', async (t) => {
    await database.query('UPDATE inventory SET quantity = 0')
    const load = startLoad(t, { ports: [service.port], clients: 16, pets: [1, 2, 3] })
    for (let time = 0; time < 30; time++) {
      await load.served(5)
      await terminate(database, 'true')
    }
    await load.stop()
    const others = load.failures.filter(({ answer }) => answer?.status !== 503)
    t.equal(others.length, 0, `${load.successes} requests were served, ${load.failures.length} got 503`)
    await hasAllConnections(t, database, service)
  })
})
