import t from 'tap'
import { requestLimits } from '../../../src/database/pool-options.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { apiKey, longTimings, startApp, type TestApp } from '../../support/app.ts'
import { type TestDatabase, testDatabase, waitForLocks } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { type Answer, json } from '../../support/http.ts'
import { sendRaw } from '../../support/raw.ts'
import { testRole } from '../../support/roles.ts'

const addMany = (database: TestDatabase, count: number): Promise<unknown> =>
  database.query(`INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, ${count}) n`)

/** Sends updates on one connection without waiting, which are served one after the other, and returns all that came back. */
async function pipeline(
  port: number,
  updates: readonly (readonly [petId: number, quantity: number])[],
): Promise<string> {
  const messages = updates.map(([petId, quantity], index) => {
    const body = JSON.stringify({ quantity })
    const close = index === updates.length - 1 ? 'Connection: close\r\n' : ''
    return (
      `PATCH /v1/inventory/${petId} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n${close}\r\n${body}`
    )
  })
  return sendRaw(port, messages.join(''))
}

t.test('updates that arrive together share a transaction, and each caller gets its own result', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 100)
  const statistics = new InventoryStatistics()
  const { send } = await startApp(t, database.url, {
    app: { inventoryStatistics: statistics },
    timings: {
      ...longTimings,
      requests: { ...requestLimits, lock: 60_000, statement: 60_000, answer: 61_000 },
    },
  })
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const updates = Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      send('PATCH', `/v1/inventory/${index + 1}`, json({ quantity: 7 })),
    ),
  )
  await waitForLocks(database)
  await eventually('all updates to arrive', async () => statistics.waitingUpdates > 80)
  await release()
  await updates
  const [commits] = await database.query(
    'SELECT count(DISTINCT xmin::text), min(quantity), max(quantity) FROM inventory',
  )
  t.ok(Number(commits?.['count']) < 20, '100 entries were written by a few transactions')
  t.match(commits, { min: '7', max: '7' })
  await Promise.all(
    Array.from({ length: 400 }, async (_, index) => {
      const petId = (index % 110) + 1
      const answer = await send('PATCH', `/v1/inventory/${petId}`, json({ quantity: index }))
      if (petId > 100) t.equal(answer.status, 404)
      else t.equal(answer.text, `{"petId":${petId},"quantity":${index},"status":"sold"}`)
    }),
  )
  const rows = await database.query('SELECT pet_id, quantity FROM inventory')
  for (const { pet_id: petId, quantity } of rows) t.equal((Number(quantity) % 110) + 1, Number(petId))
})

t.test('an update of a locked row is refused, and only that one', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 50)
  const { send } = await startApp(t, database.url)
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 7')
  for (let round = 1; round <= 2; round++) {
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        send('PATCH', `/v1/inventory/${index + 1}`, json({ quantity: round })),
      ),
    )
    for (const [index, { status, text }] of answers.entries()) {
      t.equal(status, index + 1 === 7 ? 503 : 200)
      if (status === 503)
        t.match(text, 'Another transaction has locked the entry or the whole inventory. Nothing was changed.')
    }
  }
  await release()
  t.strictSame(await database.query('SELECT DISTINCT quantity FROM inventory WHERE pet_id <> 7'), [
    { quantity: '2' },
  ])
  t.equal((await send('PATCH', '/v1/inventory/7', json({ quantity: 3 }))).status, 200)
})

t.test('updates of locked rows do not delay those of others', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 50)
  const { send } = await startApp(t, database.url, { timings: longTimings })
  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id <= 6')
  const update = async (petId: number): Promise<number> =>
    (await send('PATCH', `/v1/inventory/${petId}`, json({ quantity: 5 }))).status
  let answered = 0
  const locked = [1, 2, 3, 4, 5, 6].map((petId) => update(petId).finally(() => answered++))
  const free = Array.from({ length: 44 }, (_, index) => index + 7)
  for (let round = 0; round < 2; round++) {
    const statuses = await Promise.all(free.map(update))
    t.ok(statuses.every((status) => status === 200))
    t.equal(await update(51), 404)
    t.equal((await send('GET', '/v1/inventory')).status, 200)
  }
  t.equal(answered, 0, 'all of it happened while the callers of the locked rows still waited')
  await release()
  for (const status of await Promise.all(locked)) t.equal(status, 200)
})

t.test('two processes that write the same pets in any order all succeed', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 30)
  const timings = longTimings
  const apps = [await startApp(t, database.url, { timings }), await startApp(t, database.url, { timings })]
  for (let round = 0; round < 10; round++) {
    const answers = await Promise.all(
      apps.flatMap(({ send }, app) =>
        Array.from({ length: 30 }, (_, index) => {
          const petId = app === 0 ? index + 1 : 30 - index
          return send('PATCH', `/v1/inventory/${petId}`, json({ quantity: round }))
        }),
      ),
    )
    t.ok(answers.every(({ status }) => status === 200))
  }
})

t.test('a locked table is not a locked entry, and is served once it is free', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 50)
  const [hasty, patient] = [
    await startApp(t, database.url),
    await startApp(t, database.url, { timings: longTimings }),
  ]
  const update = ({ send }: TestApp): Promise<Answer[]> =>
    Promise.all([1, 2, 3].map((petId) => send('PATCH', `/v1/inventory/${petId}`, json({ quantity: 5 }))))
  for (const mode of ['SHARE', 'ACCESS EXCLUSIVE']) {
    const release = await database.hold(`LOCK TABLE inventory IN ${mode} MODE`)
    for (const { status, text } of await update(hasty)) {
      t.equal(status, 503)
      t.match(text, 'Another transaction has locked the entry or the whole inventory. Nothing was changed.')
    }
    const waiting = update(patient)
    await waitForLocks(database)
    await release()
    t.ok((await waiting).every(({ status }) => status === 200))
  }
})

t.test(
  'answers with what is stored where triggers and constraints of the operator are at work',
  async (t) => {
    const database = await testDatabase(t)
    await addMany(database, 50)
    await database.query(
      `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       IF NEW.pet_id = 7 THEN RETURN NULL; END IF;
       NEW.quantity = least(NEW.quantity, 100);
       RETURN NEW;
     END $$`,
    )
    await database.query(
      'CREATE TRIGGER rule BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION rule()',
    )
    await database.query('ALTER TABLE inventory ADD CHECK (pet_id <> 8 OR quantity < 50)')
    const { send } = await startApp(t, database.url)
    const update = (petId: number, quantity: number): Promise<Answer> =>
      send('PATCH', `/v1/inventory/${petId}`, json({ quantity }))
    t.match(await update(1, 500), { status: 200, text: '{"petId":1,"quantity":100,"status":"sold"}' })
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, index) => update((index % 51) + 1, 90 + index)),
    )
    for (const [index, { status, text }] of answers.entries()) {
      const petId = (index % 51) + 1
      if (petId === 51) t.equal(status, 404)
      else if (petId === 7 || petId === 8)
        t.match([status, text], [400, /The database rejects this quantity/])
      else t.ok(status === 200 && JSON.parse(text).quantity <= 100, text)
    }
    t.strictSame(await database.query('SELECT quantity FROM inventory WHERE pet_id IN (7, 8)'), [
      { quantity: '0' },
      { quantity: '0' },
    ])
  },
)

t.test('a quantity that the store does not allow is refused, and no older update of its pet', async (t) => {
  const role = await testRole(t)
  const ways = {
    constraint: 'ALTER TABLE inventory ADD CHECK (quantity <> 50)',
    'check option of a view': `ALTER TABLE inventory RENAME TO stock;
      CREATE VIEW inventory AS SELECT * FROM stock WHERE quantity <> 50 WITH CHECK OPTION`,
    'trigger that raises at the commit': `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
      CREATE CONSTRAINT TRIGGER rule AFTER UPDATE ON inventory DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.quantity = 50) EXECUTE FUNCTION rule()`,
    'raising trigger': `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
      CREATE TRIGGER rule BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.quantity = 50) EXECUTE FUNCTION rule()`,
    'trigger that raises with an SQLSTATE of its own': `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'no' USING ERRCODE = 'IN001'; END $$;
      CREATE TRIGGER rule BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.quantity = 50) EXECUTE FUNCTION rule()`,
    'trigger that raises with the SQLSTATE of a missing privilege': `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE insufficient_privilege; END $$;
      CREATE TRIGGER rule BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.quantity = 50) EXECUTE FUNCTION rule()`,
    'generated column': `ALTER TABLE inventory ADD value integer NOT NULL
      GENERATED ALWAYS AS (2000000000 + quantity / 50 * 2000000000) STORED`,
    'generated column that is divided by zero': `ALTER TABLE inventory ADD value integer NOT NULL
      GENERATED ALWAYS AS (100 / (quantity - 50)) STORED`,
    'generated column with a date that does not exist': `ALTER TABLE inventory ADD value date NOT NULL
      GENERATED ALWAYS AS (make_date(2000, 1, CASE quantity WHEN 50 THEN 50 ELSE 1 END)) STORED`,
    'skipping trigger': `CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
      CREATE TRIGGER rule BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.quantity = 50) EXECUTE FUNCTION rule()`,
  }
  for (const [way, definition] of Object.entries(ways)) {
    const database = await testDatabase(t)
    await addMany(database, 1)
    await database.query(`${definition}; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role.name}`)
    const { port } = await startApp(t, role.urlOf(database.url), { timings: longTimings })
    const text = await pipeline(
      port,
      Array.from({ length: 10 }, (_, index) => [1, index + 41] as const),
    )
    const statuses = Array.from(text.matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => Number(status))
    t.strictSame(statuses, [...Array.from({ length: 9 }, () => 200), 400], way)
    t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '49' }], way)
  }
})

t.test('an update looks up its row in the index, though the table is small', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 1000)
  await database.query('VACUUM ANALYZE inventory')
  const count = async (query: string): Promise<number> => Number((await database.query(query))[0]?.['count'])
  const scans = (): Promise<number> =>
    count("SELECT seq_scan AS count FROM pg_stat_user_tables WHERE relname = 'inventory'")
  const before = await scans()
  const { close, send } = await startApp(t, database.url)
  for (let round = 0; round < 20; round++)
    await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        send('PATCH', `/v1/inventory/${round * 10 + index + 1}`, json({ quantity: round })),
      ),
    )
  // A session reports its scans before it ends.
  await close()
  const sessions = `SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'petstore-inventory server'`
  await eventually('the sessions to end', async () => (await count(sessions)) === 0)
  t.equal(await scans(), before)
})

t.test('an update waits for another of its row, whatever the default isolation level is', async (t) => {
  const database = await testDatabase(t)
  await addMany(database, 2)
  const name = new URL(database.url).pathname.slice(1)
  await database.query(`ALTER DATABASE ${name} SET default_transaction_isolation = 'repeatable read'`)
  const { send } = await startApp(t, database.url, {
    timings: {
      ...longTimings,
      requests: { ...requestLimits, lock: 60_000, statement: 60_000, answer: 61_000 },
    },
  })
  for (const headers of [{}, { 'if-match': '"5-sold"' }]) {
    await database.query('UPDATE inventory SET quantity = 5')
    const commit = await database.hold('UPDATE inventory SET quantity = 5 WHERE pet_id = 1', 'COMMIT')
    const message = json({ quantity: 6 })
    const update = send('PATCH', '/v1/inventory/1', {
      ...message,
      headers: { ...message.headers, ...headers },
    })
    await waitForLocks(database)
    await commit()
    t.match(await update, { status: 200, text: '{"petId":1,"quantity":6,"status":"sold"}' })
  }
})

t.test('answers with what is stored where a partition or a child table has the rule', async (t) => {
  const kinds = {
    partitioned: `CREATE TABLE inventory (LIKE stock INCLUDING ALL) PARTITION BY RANGE (pet_id);
      CREATE TABLE part PARTITION OF inventory DEFAULT PARTITION BY HASH (pet_id);
      CREATE TABLE rows PARTITION OF part FOR VALUES WITH (MODULUS 1, REMAINDER 0)`,
    inherited: `CREATE TABLE inventory (LIKE stock INCLUDING ALL);
      CREATE TABLE part () INHERITS (inventory);
      CREATE TABLE rows (PRIMARY KEY (pet_id)) INHERITS (part)`,
  }
  for (const [kind, definition] of Object.entries(kinds)) {
    const database = await testDatabase(t)
    await database.query(
      `ALTER TABLE inventory RENAME TO stock; ${definition};
       INSERT INTO rows SELECT n, 0, 'sold' FROM generate_series(1, 10) n;
       CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN NEW.quantity = least(NEW.quantity, 100); RETURN NEW; END $$;
       CREATE TRIGGER rule BEFORE UPDATE ON rows FOR EACH ROW EXECUTE FUNCTION rule()`,
    )
    const { send } = await startApp(t, database.url)
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        send('PATCH', `/v1/inventory/${(index % 10) + 1}`, json({ quantity: 200 + index })),
      ),
    )
    for (const { status, text } of answers)
      t.match([status, JSON.parse(text).quantity], [200, 100], `${kind}: ${text}`)
  }
})
