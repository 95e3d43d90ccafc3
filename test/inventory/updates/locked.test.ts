import t from 'tap'
import { startService } from '../../support/app.ts'
import type { TestDatabase } from '../../support/database.ts'
import { shortWaits } from '../../support/limits.ts'

/** How often an update may be sent in its four seconds. */
const MAX_ATTEMPTS = 84

/** A trigger for the pets up to 10 that counts its runs, and then runs a statement, as a function with these settings. */
const trigger = (statement: string, settings = ''): string => `CREATE SEQUENCE attempts;
  CREATE TABLE totals AS SELECT 1 AS id;
  CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql ${settings} AS
    $$ BEGIN PERFORM nextval('attempts'); ${statement}; RETURN NEW; END $$;
  CREATE TRIGGER total BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id <= 10) EXECUTE FUNCTION total()`

const attemptsOf = async (database: TestDatabase): Promise<number> =>
  Number((await database.query('SELECT last_value FROM attempts'))[0]?.['last_value'])

const withoutWaiting = {
  'a row': ['PERFORM FROM totals FOR UPDATE NOWAIT', 'SELECT FROM totals FOR UPDATE'],
  'a table': ['LOCK TABLE totals IN EXCLUSIVE MODE NOWAIT', 'LOCK TABLE totals IN SHARE MODE'],
  'an error of its own': ["RAISE 'no' USING ERRCODE = '55P03'", 'SELECT'],
} as const

for (const [what, [statement, lock]] of Object.entries(withoutWaiting)) {
  t.test(`a trigger that does not wait for ${what} runs once for each update`, async (t) => {
    const { database, update } = await startService(t, 60)
    await database.query(trigger(statement))
    const release = await database.hold(lock)
    const { status, text } = await update(1, 5)
    t.equal(status, 503)
    t.match(text, '"code":"nothing_changed"')
    t.equal(await attemptsOf(database), 1)
    const answers = await Promise.all(Array.from({ length: 60 }, (_, index) => update(index + 1, 5)))
    for (const [index, { status }] of answers.entries()) t.equal(status, index < 10 ? 503 : 200)
    await release()
  })
}

t.test(
  'an update whose trigger has a lock timeout of its own is sent a bounded number of times',
  async (t) => {
    const { database, update } = await startService(t, 20, { timings: shortWaits })
    await database.query(trigger('PERFORM FROM totals FOR UPDATE', "SET lock_timeout = '1ms'"))
    const release = await database.hold('SELECT FROM totals FOR UPDATE')
    const { status, text } = await update(1, 5)
    t.equal(status, 503)
    t.match(text, 'Another transaction has locked the entry or the whole inventory. Nothing was changed.')
    const attempts = await attemptsOf(database)
    t.ok(attempts > 1 && attempts <= MAX_ATTEMPTS, `${attempts} attempts`)
    await release()
    t.equal((await update(1, 6)).status, 200)
  },
)

/** Rules of an operator, of which the second one cannot be combined with statements that skip locked rows. */
const rules = {
  'DO ALSO INSERT': `CREATE TABLE audit (pet_id bigint, quantity integer);
    CREATE RULE audit AS ON UPDATE TO inventory DO ALSO INSERT INTO audit VALUES (NEW.pet_id, NEW.quantity)`,
  'DO INSTEAD UPDATE': `ALTER TABLE inventory RENAME TO stock; CREATE VIEW inventory AS SELECT * FROM stock;
    CREATE RULE stock AS ON UPDATE TO inventory DO INSTEAD
      UPDATE stock SET quantity = NEW.quantity WHERE pet_id = OLD.pet_id RETURNING *`,
}

for (const [rule, definition] of Object.entries(rules)) {
  t.test(`with a rule ${rule}, the service is ready, and locked rows delay no other updates`, async (t) => {
    const { database, send, update } = await startService(t, 100)
    await database.query(definition)
    t.equal((await send('GET', '/readyz')).status, 200)
    const table = rule.startsWith('DO ALSO') ? 'inventory' : 'stock'
    const release = await database.hold(`SELECT FROM ${table} WHERE pet_id <= 20 FOR UPDATE`)
    let answered = 0
    const locked = Array.from({ length: 20 }, (_, index) => update(index + 1, 5).finally(() => answered++))
    for (let round = 1; round <= 3; round++) {
      const answers = await Promise.all(Array.from({ length: 80 }, (_, index) => update(index + 21, round)))
      for (const { status, text } of answers) t.equal(status, 200, text)
    }
    t.equal(answered, 0, 'all of it happened while the callers of the locked ones still waited')
    await release()
    for (const { status } of await Promise.all(locked)) t.equal(status, 200)
    if (rule.startsWith('DO ALSO'))
      t.equal((await database.query('SELECT FROM audit WHERE pet_id > 20')).length, 240)
  })
}
