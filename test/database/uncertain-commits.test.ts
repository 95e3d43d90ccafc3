import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { inTransaction } from '../../src/database/admin/transaction.ts'
import { longLimits, startApp } from '../support/app.ts'
import { addMany } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startOwnServer } from '../support/own-server.ts'
import { AT_COMMIT, trigger } from '../support/triggers.ts'

/** Shorter than in production, in the same order. */
const shortTimings = {
  requests: { connect: 500, lock: 250, statement: 1500, answer: 2000 },
  app: { ...longLimits.app, updates: { ...longLimits.app.updates, wait: 1000 } },
}

/** How many of the four connections are for updates. */
const UPDATE_CONNECTIONS = 3

/** How many updates each caller sends, one after the other. */
const UPDATES = 10

const WAITING = `FROM pg_stat_activity WHERE wait_event = 'SyncRep'`

const database = await startOwnServer(t)

const options = { url: database.url }

t.beforeEach(async () => {
  await database.waitForStandby('')
  await database.query('ALTER ROLE service RESET ALL; TRUNCATE inventory')
  await addMany(database, 500)
})

t.test('a synchronous standby that is away', async (t) => {
  const env = { DATABASE_POOL_SIZE: String(UPDATE_CONNECTIONS + 1) }
  const { send, update } = await startApp(t, database.url, { timings: shortTimings, env })
  /** Updates a pet. On a busy machine, that can take longer than the short limits. */
  const served = (petId: number): Promise<true> =>
    eventually('updates to be served', async () => (await update(petId, 5)).status === 200)
  await served(1)
  await database.waitForStandby('away')

  // A pet whose update waits is locked, so each update is of another one.
  let petId = 2
  const caller = async (): Promise<void> => {
    for (let sent = 0; sent < UPDATES; sent++) t.equal((await update(petId++, 7)).status, 503)
  }
  let isCalling = true
  const callers = Promise.all(Array.from({ length: 20 }, caller)).finally(() => (isCalling = false))
  while (isCalling) {
    t.equal((await send('GET', '/v1/inventory')).status, 200, 'lists are served')
    await setTimeout(50)
  }
  await callers
  const waiting = await database.query(`SELECT ${WAITING}`)
  t.ok(waiting.length <= UPDATE_CONNECTIONS, 'no more processes of the server are left waiting')

  await database.waitForStandby('')
  await Promise.all([4, 5, 6, 7].map(served))
})

t.test('the warning of a commit is received, whatever messages the role asks for', async (t) => {
  await database.query(`ALTER ROLE service SET client_min_messages = error`)
  const { update } = await startApp(t, database.url)
  t.equal((await update(1, 1)).status, 200)
  await database.waitForStandby('away')
  const cancel = `SELECT pg_cancel_backend(pid) ${WAITING}`
  const cancelCommit = () =>
    eventually('a commit that waits for the standby', async () => (await database.query(cancel)).length > 0)
  const updated = update(1, 2)
  await cancelCommit()
  t.equal((await updated).status, 503, 'a commit whose wait is cancelled is not acknowledged')
  const transaction = inTransaction(options, ({ change }) =>
    change('UPDATE inventory SET quantity = 3 WHERE pet_id = 1'),
  )
  const failure = transaction.catch((error: unknown) => error)
  await cancelCommit()
  t.match(await failure, { outcome: 'unknown', reason: 'failed' })
})

t.test('a warning of a trigger or of auto_explain says nothing about the commit', async (t) => {
  await database.query(
    `ALTER ROLE service SET session_preload_libraries = 'auto_explain';
     ALTER ROLE service SET auto_explain.log_min_duration = 0;
     ALTER ROLE service SET auto_explain.log_level = warning`,
  )
  const { send, update } = await startApp(t, database.url)
  for (const path of ['/v1/inventory', '/v1/inventory', '/readyz'])
    t.equal((await send('GET', path)).status, 200, path)
  for (const definition of [undefined, AT_COMMIT]) {
    await database.query('DROP FUNCTION IF EXISTS act CASCADE')
    await database.query(trigger("RAISE WARNING 'low'", definition))
    for (const quantity of [5, 6, 7]) t.equal((await update(1, quantity)).status, 200, String(definition))
  }
  await inTransaction(options, ({ change }) => change('UPDATE inventory SET quantity = 8 WHERE pet_id = 1'))
})
