import t from 'tap'
import { apiKey, endlessLimits, startApp, startService } from '../../support/app.ts'
import { testDatabase, testRole, waitForLocks } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { type Answer, createSender, json } from '../../support/http.ts'
import { close, listRequest, updateRequest } from '../../support/messages.ts'
import { sendRaw, statusesIn } from '../../support/raw.ts'
import { AT_COMMIT, countStatements, trigger } from '../../support/triggers.ts'

t.test('an answer has what is stored after triggers and constraints of the operator', async (t) => {
  const { database, update } = await startService(t, 50)
  await database.query('ALTER TABLE inventory ADD CHECK (pet_id <> 8 OR quantity < 50)')
  const rule = 'IF NEW.pet_id = 7 THEN RETURN NULL; END IF; NEW.quantity = least(NEW.quantity, 100)'
  await database.query(trigger(rule))
  t.match(await update(1, 500), { status: 200, text: '{"petId":1,"quantity":100,"status":"sold"}' })
  const updates = Array.from({ length: 100 }, (_, index) => update((index % 51) + 1, 90 + index))
  const answers = await Promise.all(updates)
  for (const [index, { status, text }] of answers.entries()) {
    const petId = (index % 51) + 1
    if (petId === 51) t.equal(status, 404)
    else if (petId === 7 || petId === 8) t.match([status, text], [400, /The database rejects this quantity/])
    else t.ok(status === 200 && JSON.parse(text).quantity <= 100, text)
  }
  const unchanged = await database.query('SELECT FROM inventory WHERE pet_id IN (7, 8) AND quantity = 0')
  t.equal(unchanged.length, 2)
})

t.test('one bad update among 500 takes few statements, and fails alone', async (t) => {
  const { database, updateAll, metric } = await startService(t, 500, { timings: endlessLimits })
  await database.query('ALTER TABLE inventory ADD CHECK (pet_id <> 499 OR quantity < 5)')
  const statements = await countStatements(database)
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = updateAll(500, 5)
  const waiting = () => metric('inventory_updates_waiting')
  await eventually('all but those of two statements to wait', async () => (await waiting()) > 450)
  await release()
  const [refused, ...others] = (await updates).filter(({ status }) => status !== 200)
  t.match(refused, { status: 400, text: 'The database rejects this quantity.' })
  t.equal(others.length, 0)
  t.ok((await statements()) < 100, `${await statements()} statements`)
})

t.test('updates of a key that the database rejects delay none of other keys, of the same pets', async (t) => {
  const other = 'k'.repeat(40)
  const env = { API_KEYS: `tests:${apiKey},other:${other}` }
  const { database, port, update } = await startService(t, 50, { timings: endlessLimits, env })
  const refuse = "PERFORM pg_advisory_xact_lock_shared(1); RAISE 'no'"
  await database.query(trigger(`IF NEW.quantity > 1000 THEN ${refuse}; END IF`))
  const sendBad = createSender(port, { authorization: `Bearer ${other}` })
  const bad = (petId: number): Promise<Answer> =>
    sendBad('PATCH', `/v1/inventory/${petId}`, json({ quantity: 5000 }))
  t.equal((await bad(1)).status, 400)
  const release = await database.hold('SELECT pg_advisory_xact_lock(1)')
  const first = [bad(1), bad(2)]
  await waitForLocks(database)
  let answered = 0
  const rejected = [...first, ...Array.from({ length: 48 }, (_, index) => bad(index + 3))].map((answer) =>
    answer.finally(() => answered++),
  )
  for (let round = 1; round <= 3; round++) {
    const answers = await Promise.all(Array.from({ length: 48 }, (_, index) => update(index + 3, round)))
    t.ok(answers.every(({ status }) => status === 200))
  }
  t.equal(answered, 0, 'all of it happened while the rejected ones still waited')
  await release()
  for (const { status } of await Promise.all(rejected)) t.equal(status, 400)
})

t.test('what may have been committed is never sent again, though updates share a statement', async (t) => {
  const { database, updateAll, metric } = await startService(t, 40, { timings: endlessLimits })
  const end = 'PERFORM pg_terminate_backend(pg_backend_pid())'
  await database.query(`CREATE SEQUENCE rows; CREATE SEQUENCE statements;
    ${trigger(`IF TG_LEVEL = 'ROW' THEN PERFORM nextval('rows'); ELSE PERFORM nextval('statements'); ${end}; END IF`)};
    CREATE TRIGGER last AFTER UPDATE ON inventory EXECUTE FUNCTION act()`)
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = updateAll(40, 5)
  await eventually('all but those of two statements to wait', async () => {
    return (await metric('inventory_updates_waiting')) > 30
  })
  await release()
  for (const { status, text } of await updates) t.match([status, text], [503, /"code":"service_unavailable"/])
  const count =
    'SELECT rows.last_value AS rows, statements.last_value < 20 AS "isShared" FROM rows, statements'
  t.strictSame(await database.query(count), [{ rows: '40', isShared: 't' }])
})

t.test('an update whose row a trigger skips is sent a second time, if the row is the same', async (t) => {
  const { database, updateAll, log } = await startService(t, 3)
  await database.query(`CREATE SEQUENCE attempts; ${trigger("PERFORM nextval('attempts'); RETURN NULL")}`)
  for (const { status } of await updateAll(3, 5)) t.equal(status, 400)
  t.strictSame(await database.query('SELECT last_value FROM attempts'), [{ last_value: '6' }])
  t.match(JSON.stringify(log), /no error was raised, but a trigger skipped the row/)
})

t.test('a trigger that skips a row that has the quantity has made the update', async (t) => {
  const { database, update } = await startService(t, ['1,5,sold', '2,0,sold'])
  await database.query(`CREATE TRIGGER same BEFORE UPDATE ON inventory
    FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`)
  for (const headers of [{}, { 'if-match': '"5-sold"' }, { 'if-none-match': '"6-sold"' }]) {
    const [same, other] = await Promise.all([update(1, 5, headers), update(2, 5)])
    t.match(same, { status: 200, text: '{"petId":1,"quantity":5,"status":"sold"}' })
    t.match(same.headers, { etag: '"5-sold"' })
    t.equal(other.status, 200)
  }
  t.match(await update(1, 5, { 'if-match': '"4-sold"' }), { status: 412, headers: { etag: '"5-sold"' } })
})

t.test('an update is never refused because its row is replaced or changes all the time', async (t) => {
  const { database, update } = await startService(t, ['1,5,sold'])
  const changes = {
    [`BEGIN; DELETE FROM inventory; INSERT INTO inventory VALUES (1, 5, 'sold'); COMMIT`]: [200, 503],
    'UPDATE inventory SET quantity = 11 - quantity': [200, 412],
  }
  for (const [change, expected] of Object.entries(changes)) {
    let isOver = false
    // Two that replace the row would insert it twice.
    const writers = Array.from({ length: change.startsWith('UPDATE') ? 2 : 1 }, async () => {
      while (!isOver) await database.query(change)
    })
    const statuses = new Set<number>()
    for (let count = 0; count < 300; count++) {
      const answer = await update(1, 6, { 'if-match': '"5-sold"' })
      statuses.add(answer.status === 412 && expected.includes(503) ? 200 : answer.status)
    }
    isOver = true
    await Promise.all(writers)
    const unexpected = [...statuses].filter((status) => !expected.includes(status))
    t.strictSame(unexpected, [], change)
  }
})

t.test('a quantity that the store does not allow is refused, and no older update of its pet', async (t) => {
  const role = await testRole(t)
  const ways = {
    constraint: 'ALTER TABLE inventory ADD CHECK (quantity <> 50)',
    'trigger that raises at the commit': trigger("IF NEW.quantity = 50 THEN RAISE 'no'; END IF", AT_COMMIT),
    'trigger that raises with an SQLSTATE of its own': trigger(
      "IF NEW.quantity = 50 THEN RAISE 'no' USING ERRCODE = 'IN001'; END IF",
    ),
    'generated column': `ALTER TABLE inventory ADD value integer NOT NULL
      GENERATED ALWAYS AS (2000000000 + quantity / 50 * 2000000000) STORED`,
    'skipping trigger': trigger('IF NEW.quantity = 50 THEN RETURN NULL; END IF'),
  }
  for (const [way, definition] of Object.entries(ways)) {
    const database = await testDatabase(t, { entries: 1 })
    await database.query(`${definition}; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role.name}`)
    const { port } = await startApp(t, role.toUrl(database.url))
    const requests = Array.from({ length: 10 }, (_, index) => updateRequest(index + 41))
    const statuses = statusesIn(await sendRaw(port, requests.join('') + listRequest(close)))
    t.strictSame(statuses, [...Array.from({ length: 9 }, () => 200), 400, 200], way)
    t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '49' }], way)
  }
})
