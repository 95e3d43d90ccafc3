import t from 'tap'
import { endlessLimits, shortWaits, startApp, startService } from '../../support/app.ts'
import { testDatabase, waitForLocks } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { countStatements, trigger } from '../../support/triggers.ts'

t.test('updates that arrive together share a transaction, and each caller gets its own result', async (t) => {
  const database = await testDatabase(t, { entries: 100 })
  // A name of Citus's own, which sends each update individually.
  await database.query(`${trigger('NULL')}; ALTER TRIGGER act ON inventory RENAME TO truncate_trigger_1`)
  const { update, updateAll, metric } = await startApp(t, database.url, { timings: endlessLimits })
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = updateAll(100, 7)
  await waitForLocks(database)
  // Those that are in flight, or on their way to the service, may each be a transaction.
  await eventually('all updates to arrive', async () => (await metric('inventory_updates_waiting')) > 80)
  await release()
  await updates
  const commits = await database.query('SELECT DISTINCT xmin::text, quantity FROM inventory')
  t.ok(commits.length < 30, '100 entries were written by a few transactions')
  t.ok(commits.every(({ quantity }) => quantity === '7'))
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

/** With 250 pets, and the callers of those that are locked wait for as long as a test wants; or for a few seconds. */
const [service, limited] = [await startService(t, 250), await startService(t, 60, { timings: shortWaits })]

const LOCKED = 'Another transaction has locked the entry or the whole inventory. Nothing was changed.'

t.test('an update of a locked row or table is refused if it cannot wait, and no other is', async (t) => {
  const { database, updateAll } = limited
  const patient = await startApp(t, database.url)
  for (const [lock, pets, firstLocked] of [
    ['UPDATE inventory SET quantity = 1 WHERE pet_id = 50', 50, 50],
    ['LOCK TABLE inventory IN SHARE MODE', 3, 1],
    ['LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE', 3, 1],
  ] as const) {
    const release = await database.hold(lock)
    for (const [index, { status, text }] of (await updateAll(pets, 2)).entries()) {
      const isLocked = index + 1 >= firstLocked
      t.equal(status, isLocked ? 503 : 200, `pet ${index + 1}`)
      if (isLocked) t.match(text, LOCKED)
    }
    const waiting = patient.updateAll(pets, 5)
    await waitForLocks(database)
    await release()
    t.ok((await waiting).every(({ status }) => status === 200))
  }
})

/** How often an update may be sent in its four seconds. */
const MAX_ATTEMPTS = 84

/** Statements of a trigger that do not wait for a lock, the lock. */
const withoutWaiting = {
  'a row': ['PERFORM FROM totals FOR UPDATE NOWAIT', 'SELECT FROM totals FOR UPDATE'],
  'a table': ['LOCK TABLE totals IN EXCLUSIVE MODE NOWAIT', 'LOCK TABLE totals IN SHARE MODE'],
  'an error of its own': ["RAISE 'no' USING ERRCODE = '55P03'", 'SELECT'],
} as const

t.test('a trigger that does not wait for a lock runs once, or a bounded number of times', async (t) => {
  const { database, update, updateAll } = limited
  const { query } = database
  await query('CREATE SEQUENCE attempts; CREATE TABLE totals AS SELECT 1')
  const act = (statement: string) =>
    query(`DROP FUNCTION IF EXISTS act CASCADE; ALTER SEQUENCE attempts RESTART;
      ${trigger(`IF NEW.pet_id <= 10 THEN PERFORM nextval('attempts'); ${statement}; END IF`)}`)
  const attempts = async () => Number((await query('SELECT last_value FROM attempts'))[0]?.['last_value'])
  for (const [what, [statement, lock]] of Object.entries(withoutWaiting)) {
    await act(statement)
    const release = await database.hold(lock)
    t.match(await update(1, 5), { status: 503, text: '"code":"nothing_changed"' })
    t.equal(await attempts(), 1, what)
    for (const [index, { status }] of (await updateAll(60, 5)).entries())
      t.equal(status, index < 10 ? 503 : 200, `${what}, pet ${index + 1}`)
    await release()
  }
  await act('PERFORM FROM totals FOR UPDATE')
  await query("ALTER FUNCTION act SET lock_timeout = '1ms'")
  const release = await database.hold('SELECT FROM totals FOR UPDATE')
  t.match(await update(1, 5), { status: 503, text: LOCKED })
  const count = await attempts()
  t.ok(count > 1 && count <= MAX_ATTEMPTS, `${count} attempts`)
  await release()
  t.equal((await update(1, 6)).status, 200)
})

const waiting = trigger('IF NEW.pet_id <= 200 THEN PERFORM FROM totals FOR UPDATE; END IF')

for (const [what, definition, lock] of [
  ['rows are locked', '', 'SELECT FROM inventory WHERE pet_id <= 200 FOR UPDATE'],
  ['trigger waits', `CREATE TABLE totals AS SELECT 1; ${waiting}`, 'SELECT FROM totals FOR UPDATE'],
] as const) {
  t.test(`updates whose ${what} do not delay others, also if more and more come`, async (t) => {
    await service.database.query(definition)
    const release = await service.database.hold(lock)
    const update = async (petId: number): Promise<number> => (await service.update(petId, 5)).status
    let answered = 0
    const locked: Promise<number>[] = []
    const updateLocked = () => locked.push(update(1 + (locked.length % 200)).finally(() => answered++))
    const more = setInterval(updateLocked, 20)
    const free = Array.from({ length: 50 }, (_, index) => index + 201)
    for (const petId of free) t.equal(await update(petId), 200)
    t.ok((await Promise.all(free.map(update))).every((status) => status === 200))
    t.equal(await update(251), 404)
    t.equal((await service.send('GET', '/v1/inventory')).status, 200)
    clearInterval(more)
    t.ok(locked.length > 10, `${locked.length} updates waited`)
    t.equal(answered, 0, 'all of it happened while the callers of the locked ones still waited')
    await release()
    for (const status of await Promise.all(locked)) t.equal(status, 200)
  })
}

t.test('updates that have waited for the same lock share statements once it is free', async (t) => {
  const { database, updateAll } = service
  await database.query('DROP FUNCTION act CASCADE')
  const slow = 'PERFORM pg_advisory_xact_lock_shared(1), pg_sleep(0.1)'
  const statements = await countStatements(database, slow)
  const release = await database.hold('SELECT pg_advisory_xact_lock(1)')
  const updates = updateAll(200, 5)
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
