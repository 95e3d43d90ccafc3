import t from 'tap'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { startApp, startService, type TestApp } from '../../support/app.ts'
import { testDatabase, waitForLocks } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { Answer } from '../../support/http.ts'
import { endlessLimits, shortWaits } from '../../support/limits.ts'

/** Updates the pets from 1 to `count` at once. */
const updateAll = ({ update }: TestApp, count: number, quantity: number): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => update(index + 1, quantity)))

t.test('updates that arrive together share a transaction, and each caller gets its own result', async (t) => {
  const statistics = new InventoryStatistics()
  const app = { inventoryStatistics: statistics }
  const service = await startService(t, 100, { app, timings: endlessLimits })
  const { database, update } = service
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = updateAll(service, 100, 7)
  await waitForLocks(database)
  // Those that are in flight, or on their way to the service, may each be a transaction.
  await eventually('all updates to arrive', async () => statistics.waitingUpdates > 80)
  await release()
  await updates
  const [commits] = await database.query(
    'SELECT count(DISTINCT xmin::text), min(quantity), max(quantity) FROM inventory',
  )
  t.ok(Number(commits?.['count']) < 30, '100 entries were written by a few transactions')
  t.match(commits, { min: '7', max: '7' })
  await Promise.all(
    Array.from({ length: 400 }, async (_, index) => {
      const petId = (index % 110) + 1
      const answer = await update(petId, index)
      if (petId > 100) t.equal(answer.status, 404)
      else t.equal(answer.text, `{"petId":${petId},"quantity":${index},"status":"sold"}`)
    }),
  )
  const rows = await database.query('SELECT pet_id, quantity FROM inventory')
  for (const { pet_id: petId, quantity } of rows) t.equal((Number(quantity) % 110) + 1, Number(petId))
})

t.test('an update of a locked row is refused, and only that one', async (t) => {
  const service = await startService(t, 50, { timings: shortWaits })
  const { database, update } = service
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 7')
  for (const [index, { status, text }] of (await updateAll(service, 50, 2)).entries()) {
    t.equal(status, index + 1 === 7 ? 503 : 200, `pet ${index + 1}`)
    if (status === 503)
      t.match(text, 'Another transaction has locked the entry or the whole inventory. Nothing was changed.')
  }
  await release()
  t.strictSame(await database.query('SELECT DISTINCT quantity FROM inventory WHERE pet_id <> 7'), [
    { quantity: '2' },
  ])
  t.equal((await update(7, 3)).status, 200)
})

const waitsForLocks: Readonly<Record<string, readonly [definition: string, lock: string]>> = {
  'rows are locked': ['', 'SELECT FROM inventory WHERE pet_id <= 200 FOR UPDATE'],
  'trigger waits for a lock': [
    `CREATE TABLE totals AS SELECT 1 AS id;
      CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM FROM totals FOR UPDATE; RETURN NEW; END $$;
      CREATE TRIGGER total BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id <= 200) EXECUTE FUNCTION total()`,
    'SELECT FROM totals FOR UPDATE',
  ],
}

for (const [what, [definition, lock]] of Object.entries(waitsForLocks)) {
  t.test(`updates whose ${what} do not delay others, also if more and more come`, async (t) => {
    const app = await startService(t, 250)
    await app.database.query(definition)
    const release = await app.database.hold(lock)
    const update = async (petId: number): Promise<number> => (await app.update(petId, 5)).status
    let answered = 0
    const locked: Promise<number>[] = []
    const more = setInterval(
      () => locked.push(update(1 + (locked.length % 200)).finally(() => answered++)),
      20,
    )
    const free = Array.from({ length: 50 }, (_, index) => index + 201)
    for (const petId of free) t.equal(await update(petId), 200)
    t.ok((await Promise.all(free.map(update))).every((status) => status === 200))
    t.equal(await update(251), 404)
    t.equal((await app.send('GET', '/v1/inventory')).status, 200)
    clearInterval(more)
    t.ok(locked.length > 10, `${locked.length} updates waited`)
    t.equal(answered, 0, 'all of it happened while the callers of the locked ones still waited')
    await release()
    for (const status of await Promise.all(locked)) t.equal(status, 200)
  })
}

t.test('updates that have waited for the same lock share statements once it is free', async (t) => {
  const service = await startService(t, 200)
  const { database } = service
  await database.query(`CREATE SEQUENCE statements;
    CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM nextval('statements'), pg_advisory_xact_lock_shared(1), pg_sleep(0.1); RETURN NULL; END $$;
    CREATE TRIGGER total BEFORE UPDATE ON inventory EXECUTE FUNCTION total()`)
  const statements = async (): Promise<number> =>
    Number((await database.query('SELECT last_value FROM statements'))[0]?.['last_value'])
  const release = await database.hold('SELECT pg_advisory_xact_lock(1)')
  const updates = updateAll(service, 200, 5)
  let before = 0
  await eventually('several of them to be sent individually', async () => {
    before = await statements()
    return before > 6
  })
  await release()
  t.ok((await updates).every(({ status }) => status === 200))
  const count = (await statements()) - before
  t.ok(count < 150, `${count} statements`)
})

t.test('a locked table is not a locked entry, and is served once it is free', async (t) => {
  const hasty = await startService(t, 50, { timings: shortWaits })
  const { database } = hasty
  const patient = await startApp(t, database.url)
  for (const mode of ['SHARE', 'ACCESS EXCLUSIVE']) {
    const release = await database.hold(`LOCK TABLE inventory IN ${mode} MODE`)
    for (const { status, text } of await updateAll(hasty, 3, 5)) {
      t.equal(status, 503)
      t.match(text, 'Another transaction has locked the entry or the whole inventory. Nothing was changed.')
    }
    const waiting = updateAll(patient, 3, 5)
    await waitForLocks(database)
    await release()
    t.ok((await waiting).every(({ status }) => status === 200))
  }
})

t.test('if Citus distributes the table, each update is a statement', async (t) => {
  const app = await startService(t, 20)
  const { database } = app
  await database.query(`CREATE SEQUENCE statements;
    CREATE FUNCTION number() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('statements'); RETURN NULL; END $$;
    CREATE TRIGGER truncate_trigger_1 BEFORE UPDATE ON inventory EXECUTE FUNCTION number()`)
  const statements = async (): Promise<number> =>
    Number((await database.query("SELECT nextval('statements')"))[0]?.['nextval'])
  await eventually('updates to be sent one by one', async () => {
    const before = await statements()
    await updateAll(app, 20, 5)
    return (await statements()) === before + 21
  })
})

t.test('an update waits for another of its row, whatever the default isolation level is', async (t) => {
  const database = await testDatabase(t, { entries: 2 })
  await database.query(
    `ALTER DATABASE ${database.name} SET default_transaction_isolation = 'repeatable read'`,
  )
  const { update } = await startApp(t, database.url, { timings: endlessLimits })
  for (const headers of [{}, { 'if-match': '"5-sold"' }]) {
    await database.query('UPDATE inventory SET quantity = 5')
    const commit = await database.hold('UPDATE inventory SET quantity = 5 WHERE pet_id = 1', 'COMMIT')
    const updated = update(1, 6, headers)
    await waitForLocks(database)
    await commit()
    t.match(await updated, { status: 200, text: '{"petId":1,"quantity":6,"status":"sold"}' })
  }
})
