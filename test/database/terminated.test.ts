import t, { type Test } from 'tap'
import { startService } from '../support/app.ts'
import { findSessions, waitForSessions } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startLoad } from '../support/load.ts'

type Service = Awaited<ReturnType<typeof startService>>

/** One connection for lists, three for updates, and one for readiness and keys. */
const CONNECTIONS = 5

const OF_SERVICE = "application_name = 'petstore-inventory server'"

/** Asserts that updates, lists and readiness are served, that no connection is lost for good, and that there are no others. */
async function hasAllConnections(t: Test, { database, send, update, metric }: Service): Promise<void> {
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 1')
  const waiting = update(1, 5)
  await waitForSessions(database, "wait_event_type = 'Lock'")
  t.equal((await update(3, 5)).status, 200, 'an update passes the one that waits')
  await release()
  t.equal((await waiting).status, 200)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/readyz')).status, 200)
  // A connection that is never given back counts as used for ever, and takes the place of another one.
  await eventually('every connection to be given back', async () => {
    return (await metric('db_client_connection_count', { db_client_connection_state: 'used' })) === 0
  })
  const open = await findSessions(database, OF_SERVICE)
  t.ok(open.length <= CONNECTIONS, `${open.length} connections`)
}

t.test('the service survives terminated connections, thirty times under load', async (t) => {
  // As few connections as it can have, so that a single one that is lost for good is missed.
  const service = await startService(t, 3, { env: { DATABASE_POOL_SIZE: '4' } })
  const { database, port } = service
  await hasAllConnections(t, service)
  await database.query('UPDATE inventory SET quantity = 0')
  const load = startLoad(t, { ports: [port], clients: 16, pets: [1, 2, 3] })
  for (let time = 0; time < 30; time++) {
    await load.served(5)
    const sessions = await findSessions(database, OF_SERVICE)
    const areEnded = `pid = ANY ('{${sessions.map(({ pid }) => pid)}}'::integer[])`
    await database.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${areEnded}`)
    await waitForSessions(database, areEnded, 0)
  }
  await load.stop()
  const others = load.failures.filter(({ answer }) => answer?.status !== 503)
  t.equal(others.length, 0, `${load.successes} requests were served, ${load.failures.length} got 503`)
  await hasAllConnections(t, service)
})
