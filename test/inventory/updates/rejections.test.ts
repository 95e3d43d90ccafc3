import t from 'tap'
import { apiKey, endlessLimits, startService } from '../../support/app.ts'
import { waitForLocks } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { type Answer, createSender, json } from '../../support/http.ts'
import { close, listRequest, updateRequest } from '../../support/messages.ts'
import { sendRaw, statusesIn } from '../../support/raw.ts'
import { AT_COMMIT, countStatements, trigger } from '../../support/triggers.ts'

const other = 'k'.repeat(40)
const env = { API_KEYS: `tests:${apiKey},other:${other}` }
const service = await startService(t, 500, { timings: endlessLimits, env })
const { database, port, update, updateAll } = service
const { query } = database

t.beforeEach(() =>
  query(`DROP FUNCTION IF EXISTS act CASCADE; DROP SEQUENCE IF EXISTS attempts, rows, statements;
    ALTER TABLE inventory DROP CONSTRAINT IF EXISTS few; UPDATE inventory SET quantity = 0`),
)

/** Sends updates while the table is locked, so that all but those of two statements, of which so many wait, share the next ones. */
async function updateTogether(count: number, others: number): Promise<Answer[]> {
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = updateAll(count, 5)
  const waiting = () => service.metric('inventory_updates_waiting')
  await eventually('the other updates to wait', async () => (await waiting()) > others)
  await release()
  return updates
}

t.test('an answer has what is stored after triggers and constraints of the operator', async (t) => {
  await query('ALTER TABLE inventory ADD CONSTRAINT few CHECK (pet_id <> 8 OR quantity < 50)')
  await query(trigger('IF NEW.pet_id = 7 THEN RETURN NULL; END IF; NEW.quantity = least(NEW.quantity, 100)'))
  t.match(await update(1, 500), { status: 200, text: '{"petId":1,"quantity":100,"status":"sold"}' })
  const pets = Array.from({ length: 100 }, (_, index) => (index % 50) + 1)
  const answers = await Promise.all([
    update(501, 5),
    ...pets.map((petId, index) => update(petId, 90 + index)),
  ])
  for (const [index, { status, text }] of answers.entries()) {
    const petId = pets[index - 1]
    if (petId === undefined) t.equal(status, 404)
    else if (petId === 7 || petId === 8) t.match([status, text], [400, /The database rejects this quantity/])
    else t.ok(status === 200 && JSON.parse(text).quantity <= 100, text)
  }
  t.equal((await query('SELECT FROM inventory WHERE pet_id IN (7, 8) AND quantity = 0')).length, 2)
})

t.test('one bad update among 500 takes few statements, and fails alone', async (t) => {
  await query('ALTER TABLE inventory ADD CONSTRAINT few CHECK (pet_id <> 499 OR quantity < 5)')
  const statements = await countStatements(database)
  const [refused, ...others] = (await updateTogether(500, 450)).filter(({ status }) => status !== 200)
  t.match(refused, { status: 400, text: 'The database rejects this quantity.' })
  t.equal(others.length, 0)
  t.ok((await statements()) < 100, `${await statements()} statements`)
})

t.test('updates of a key that the database rejects delay none of other keys, of the same pets', async (t) => {
  const refuse = "PERFORM pg_advisory_xact_lock_shared(1); RAISE 'no'"
  await query(trigger(`IF NEW.quantity > 1000 THEN ${refuse}; END IF`))
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
  const end = 'PERFORM pg_terminate_backend(pg_backend_pid())'
  await query(`CREATE SEQUENCE rows; CREATE SEQUENCE statements;
    ${trigger(`IF TG_LEVEL = 'ROW' THEN PERFORM nextval('rows'); ELSE PERFORM nextval('statements'); ${end}; END IF`)};
    CREATE TRIGGER last AFTER UPDATE ON inventory EXECUTE FUNCTION act()`)
  for (const { status, text } of await updateTogether(40, 30))
    t.match([status, text], [503, /"code":"service_unavailable"/])
  const count =
    'SELECT rows.last_value AS rows, statements.last_value < 20 AS "isShared" FROM rows, statements'
  t.strictSame(await query(count), [{ rows: '40', isShared: 't' }])
})

t.test('an update whose row a trigger skips is sent a second time, if the row is the same', async (t) => {
  await query(`CREATE SEQUENCE attempts; ${trigger("PERFORM nextval('attempts'); RETURN NULL")}`)
  for (const { status } of await updateAll(3, 5)) t.equal(status, 400)
  t.strictSame(await query('SELECT last_value FROM attempts'), [{ last_value: '6' }])
  t.match(JSON.stringify(service.log), /no error was raised, but a trigger skipped the row/)
})

t.test('a trigger that skips a row that has the quantity has made the update', async (t) => {
  await query(`UPDATE inventory SET quantity = 5 WHERE pet_id = 1; CREATE TRIGGER same BEFORE UPDATE ON inventory
    FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`)
  for (const headers of [{}, { 'if-match': '"5-sold"' }, { 'if-none-match': '"6-sold"' }]) {
    const [same, other] = await Promise.all([update(1, 5, headers), update(2, 5)])
    t.match(same, { status: 200, text: '{"petId":1,"quantity":5,"status":"sold"}' })
    t.match(same.headers, { etag: '"5-sold"' })
    t.equal(other.status, 200)
  }
  t.match(await update(1, 5, { 'if-match': '"4-sold"' }), { status: 412, headers: { etag: '"5-sold"' } })
  await query('DROP TRIGGER same ON inventory')
})

t.test('an update is never refused because its row is replaced or changes all the time', async (t) => {
  await query('UPDATE inventory SET quantity = 5 WHERE pet_id = 1')
  const replace = `DELETE FROM inventory WHERE pet_id = 1; INSERT INTO inventory VALUES (1, 5, 'sold')`
  const exchange = 'UPDATE inventory SET quantity = 11 - quantity WHERE pet_id = 1'
  // Two that replace the row would insert it twice.
  const cases: [expected: number[], ...changes: string[]][] = [
    [[200, 412, 503], replace],
    [[200, 412], exchange, exchange],
  ]
  for (const [expected, ...changes] of cases) {
    let isOver = false
    const writers = changes.map(async (change) => {
      while (!isOver) await query(change)
    })
    const statuses = new Set<number>()
    for (let count = 0; count < 100; count++)
      statuses.add((await update(1, 6, { 'if-match': '"5-sold"' })).status)
    isOver = true
    await Promise.all(writers)
    const unexpected = [...statuses].filter((status) => !expected.includes(status))
    t.strictSame(unexpected, [], changes.join('; '))
  }
})

t.test('a quantity that the store does not allow is refused, and no older update of its pet', async (t) => {
  const ways = {
    constraint: 'ALTER TABLE inventory ADD CONSTRAINT few CHECK (quantity <> 50)',
    'trigger that raises at the commit': trigger("IF NEW.quantity = 50 THEN RAISE 'no'; END IF", AT_COMMIT),
    'trigger that raises with an SQLSTATE of its own': trigger(
      "IF NEW.quantity = 50 THEN RAISE 'no' USING ERRCODE = 'IN001'; END IF",
    ),
    'skipping trigger': trigger('IF NEW.quantity = 50 THEN RETURN NULL; END IF'),
    'generated column': `ALTER TABLE inventory ADD value integer NOT NULL
      GENERATED ALWAYS AS (2000000000 + quantity / 50 * 2000000000) STORED`,
  }
  for (const [way, definition] of Object.entries(ways)) {
    await query(
      `DROP FUNCTION IF EXISTS act CASCADE; ALTER TABLE inventory DROP CONSTRAINT IF EXISTS few; ${definition}`,
    )
    const requests = Array.from({ length: 10 }, (_, index) => updateRequest(index + 41))
    const statuses = statusesIn(await sendRaw(port, requests.join('') + listRequest(close)))
    t.strictSame(statuses, [...Array.from({ length: 9 }, () => 200), 400, 200], way)
    t.strictSame(await query('SELECT quantity FROM inventory WHERE pet_id = 1'), [{ quantity: '49' }], way)
  }
})
