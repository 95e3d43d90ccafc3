import t from 'tap'
import { startApp } from '../support/app.ts'
import { eventually } from '../support/eventually.ts'
import { hold } from '../support/on-server.ts'
import { makeCluster, type OwnServer, startOwnServer } from '../support/own-server.ts'
import { startRelay } from '../support/relay.ts'

// The service can tell them apart.
const [one, other] = [await startOwnServer(t), await startOwnServer(t, {}, makeCluster)]

t.beforeEach(async () => {
  for (const server of [one, other]) {
    await settings(server, 'ALTER SYSTEM RESET ALL')
    await eventually('the server to take writes', async () => {
      const [row] = await server.query('SHOW default_transaction_read_only')
      return row?.['default_transaction_read_only'] === 'off'
    })
    await server.query(`ALTER ROLE service RESET ALL; TRUNCATE inventory;
      INSERT INTO inventory VALUES (1, ${server === one ? 1 : 10}, 'available')`)
  }
})

const toList = (quantity: number): string => `[{"petId":1,"quantity":${quantity},"status":"available"}]`

/** Ends the connections whose last statement was an update; those for lists and for the probe stay. */
const END_UPDATERS = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE usename = 'service' AND query LIKE 'UPDATE inventory%'`

async function settings(server: OwnServer, ...statements: string[]): Promise<void> {
  for (const statement of [...statements, 'SELECT pg_reload_conf()']) await server.query(statement)
}

t.test('a server that becomes read-only is not served from, until it takes writes', async (t) => {
  const { send, update } = await startApp(t, one.url)
  t.equal((await update(1, 2)).status, 200)
  t.equal((await send('GET', '/v1/inventory')).text, toList(2))
  const { send: sendOther } = await startApp(t, one.url)
  t.equal((await sendOther('GET', '/v1/inventory')).text, toList(2))

  await settings(one, 'ALTER SYSTEM SET default_transaction_read_only = on')
  const isRefused = async () => (await sendOther('GET', '/v1/inventory')).status === 503
  await eventually('a list to fail in a process without updates', isRefused)
  await eventually('an update to fail', async () => (await update(1, 3)).status === 503)
  t.equal((await send('GET', '/v1/inventory')).status, 503, 'the server of the updates may be another one')
  const readiness = async (): Promise<string> => (await send('GET', '/readyz')).text
  await eventually('the service to be not ready', async () => /read-only/.test(await readiness()))
  const { send: sendLater } = await startApp(t, one.url)
  t.equal((await sendLater('GET', '/v1/inventory')).status, 503, 'one that starts meanwhile')

  await settings(one, 'ALTER SYSTEM RESET default_transaction_read_only')
  await eventually('an update', async () => (await update(1, 4)).status === 200)
  t.equal((await send('GET', '/v1/inventory')).text, toList(4))
  await eventually('a list', async () => (await sendLater('GET', '/v1/inventory')).text === toList(4))
  await eventually('the service to be ready', async () => (await send('GET', '/readyz')).status === 200)
})

t.test('a list that is under way on one server when updates move to another is not answered', async (t) => {
  const address = await startRelay(t, one.url)
  const { send, update } = await startApp(t, address.url)
  t.equal((await send('GET', '/v1/inventory')).text, toList(1))
  t.equal((await update(1, 2)).status, 200)

  const release = await hold(t, one.superuserUrl, 'LOCK TABLE inventory')
  const waiting = send('GET', '/v1/inventory')
  const waitingRead = "SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"
  await eventually('the list to wait', async () => (await one.query(waitingRead)).length > 0)
  address.leadTo(other.url)
  await one.query(END_UPDATERS)
  await eventually('an update', async () => (await update(1, 11)).status === 200)
  const late = send('GET', '/v1/inventory')
  await release()
  const answer = await waiting
  // Read again from the other server, before or after the update.
  if (answer.status !== 503) t.ok([toList(10), toList(11)].includes(answer.text), answer.text)
  t.equal((await late).text, toList(11), 'one that was asked for later, and waited for the first')
})

t.test('a former primary is not served from, until the newer one is back', async (t) => {
  const [cluster] = await one.query('SELECT system_identifier AS id FROM pg_control_system()')
  // What a new connection is told of its server: the identifier of the cluster, and the timeline with its length.
  const told = (timeline: number): string => `${cluster?.['id']}\0\0\0\x01${timeline}`
  let timeline = 2
  const address = await startRelay(t, one.url, {
    towardsClient: (bytes) =>
      Buffer.from(bytes.toString('latin1').replace(told(1), told(timeline)), 'latin1'),
  })
  const { send, update, log } = await startApp(t, address.url)
  t.equal((await update(1, 2)).status, 200)
  t.equal((await send('GET', '/v1/inventory')).text, toList(2))
  timeline = 1
  address.cut()
  t.equal((await update(1, 3)).status, 503)
  t.equal((await send('GET', '/v1/inventory')).status, 503)
  t.match(JSON.stringify(log), /a former primary: it is on timeline 1, and timeline 2 was in use since/)
  timeline = 2
  await eventually('an update', async () => (await update(1, 4)).status === 200)
  t.equal((await send('GET', '/v1/inventory')).text, toList(4))
})
