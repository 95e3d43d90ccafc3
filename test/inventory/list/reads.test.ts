import t from 'tap'
import { longLimits, startApp } from '../../support/app.ts'
import { inventory, runCommand } from '../../support/command.ts'
import { findSessions, type TestDatabase, testDatabase, waitForSessions } from '../../support/database.ts'
import { isError } from '../../support/http.ts'
import { startRelay } from '../../support/relay.ts'

const ENTRIES = 2000

/** Resolves when at least `count` sessions have waited for a lock on a table for some time. */
const sessionsWait = (database: TestDatabase, application: string, count = 1, seconds = 0): Promise<void> =>
  waitForSessions(
    database,
    `application_name LIKE '${application}' AND wait_event_type = 'Lock' AND wait_event = 'relation'
     AND query_start <= clock_timestamp() - interval '${seconds} s'`,
    count,
  )

t.test('a list or an export that waited for a transaction that replaces the rows is whole', async (t) => {
  const database = await testDatabase(t, { entries: ENTRIES })
  const apps = await Promise.all([1, 2].map(() => startApp(t, database.url)))
  // One has read the list before and asks what has changed; the other reads it for the first time.
  await apps[0]?.send('GET', '/v1/inventory')
  await database.query('UPDATE inventory SET quantity = 7 WHERE pet_id = 7')
  // Its process takes a while to start the first time.
  await runCommand(t, '--version')
  const replace =
    'CREATE TEMPORARY TABLE rows AS TABLE inventory; TRUNCATE inventory; INSERT INTO inventory TABLE rows'
  const commit = await database.hold(replace, 'COMMIT')
  const lists = apps.map(({ send }) => send('GET', '/v1/inventory'))
  await sessionsWait(database, 'petstore-inventory%', 2)
  const ended = inventory(t, database.url, 'export')
  await sessionsWait(database, 'petstore-inventory cli')
  await commit()
  for (const { status, text } of await Promise.all(lists)) {
    t.equal(status, 200)
    t.equal(JSON.parse(text).length, ENTRIES)
  }
  const { code, stdout } = await ended
  t.equal(code, 0)
  t.equal(stdout.trimEnd().split('\n').length, ENTRIES + 1)
})

t.test('a list waits for a lock, whatever the settings of the role are', async (t) => {
  for (const [pooler, timeout] of [
    ['', ''],
    ['transaction', ''],
    ['transaction', ' -c statement_timeout=300'],
  ] as const) {
    const database = await testDatabase(t)
    const settings = `-c default_transaction_isolation=serializable${timeout}`
    const { send } = await startApp(t, `${database.url}?options=${encodeURIComponent(settings)}`, {
      env: { DATABASE_POOLER: pooler },
    })
    t.equal((await send('GET', '/v1/inventory')).text, '[]')
    await database.query("INSERT INTO inventory VALUES (1, 1, 'available')")
    const replace = "TRUNCATE inventory; INSERT INTO inventory VALUES (2, 2, 'available')"
    const commit = await database.hold(replace, 'COMMIT')
    const list = send('GET', '/v1/inventory')
    await sessionsWait(database, 'petstore-inventory%', 1, 1)
    await commit()
    t.equal((await list).text, '[{"petId":2,"quantity":2,"status":"available"}]', pooler + timeout)
  }
})

t.test('a list that has waited for its limit is refused, and served once the table is free', async (t) => {
  const database = await testDatabase(t, { entries: ENTRIES })
  const timings = { lists: { ...longLimits.lists, lock: 500 } }
  for (const pooler of ['', 'transaction']) {
    const { send, log } = await startApp(t, database.url, { timings, env: { DATABASE_POOLER: pooler } })
    const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
    // Nothing but the limit ends these: the lock lasts until all of them are answered.
    const lists = Array.from({ length: 5 }, () => send('GET', '/v1/inventory'))
    for (const answer of await Promise.all(lists)) {
      isError(t, answer, 503, 'service_unavailable')
      t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
    }
    t.match(JSON.stringify(log), 'canceling statement due to lock timeout')
    // It was not the limit of an answer.
    t.notOk(log.some(({ msg }) => msg === 'a database connection was lost'))
    await release()
    t.equal((await send('GET', '/v1/inventory')).status, 200)
  }
})

t.test('a list is read whole after its changes took too long to find', async (t) => {
  const database = await testDatabase(t, { entries: 2 })
  // Changes never arrive; everything else does at once.
  const relay = await startRelay(t, database.url, {
    towardsDatabase: (bytes) => (bytes.includes('inventory_list_changes') ? new Promise(() => {}) : bytes),
  })
  const { send, update, metric } = await startApp(t, relay.url, {
    timings: { lists: { ...longLimits.lists, answer: 5000 } },
  })
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  await update(1, 1)
  isError(t, await send('GET', '/v1/inventory'), 503, 'service_unavailable')
  for (const quantity of [2, 3]) {
    await update(1, quantity)
    t.match(await send('GET', '/v1/inventory'), { status: 200, text: `"quantity":${quantity},` })
  }
  t.equal(await metric('inventory_lists_total', { result: 'read' }), 3)
})

t.test('what the server does not support, as with Citus, costs a list no connection', async (t) => {
  const database = await testDatabase(t, { entries: 2 })
  const relay = await startRelay(t, database.url, {
    towardsDatabase: (bytes) =>
      bytes.includes('EXPLAIN')
        ? bytes
        : Buffer.from(bytes.toString('latin1').replace('WITH RECURSIVE', 'WITH RECURRING'), 'latin1'),
  })
  const { send, update } = await startApp(t, relay.url)
  const pids = new Set<unknown>()
  for (const quantity of [1, 2, 3]) {
    await update(1, quantity)
    t.match(await send('GET', '/v1/inventory'), { status: 200, text: `"quantity":${quantity},` })
    for (const { pid } of await findSessions(database, "query LIKE 'SELECT concat_ws%'")) pids.add(pid)
  }
  t.equal(pids.size, 1)
})

t.test('a list whose connection is lost in its middle is read again, from the beginning', async (t) => {
  const database = await testDatabase(t, { entries: 20_000 })
  let losses = 0
  let size = 0
  const relay = await startRelay(t, database.url, {
    towardsClient: (bytes) => {
      size += bytes.length
      if (losses === 0 || size < 400_000) return bytes
      losses--
      size = 0
      return undefined
    },
  })
  const { send, log } = await startApp(t, relay.url)
  losses = 1
  const { status, text } = await send('GET', '/v1/inventory')
  t.equal(status, 200)
  const ids = JSON.parse(text).map(({ petId }: { petId: number }) => petId)
  t.strictSame(ids, [...Array(20_001).keys()].slice(1))
  t.equal(log.filter(({ msg }) => String(msg).startsWith('a list is read again')).length, 1)

  await database.query('UPDATE inventory SET quantity = 1')
  losses = 2
  isError(t, await send('GET', '/v1/inventory'), 503, 'service_unavailable')
})
