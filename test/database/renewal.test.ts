import t from 'tap'
import { startService } from '../support/app.ts'
import { openPool } from '../support/pool.ts'

/** A function of an operator's trigger that reads the column whose type is changed. */
const READS = `CREATE FUNCTION limits() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE entry record; BEGIN
    SELECT quantity INTO entry FROM inventory WHERE pet_id = NEW.pet_id;
    IF entry.quantity >= 0 AND NEW.quantity >= 0 THEN RETURN NEW; END IF; RETURN NULL; END $$;
  CREATE TRIGGER limits BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION limits()`

for (const type of ['bigint', 'smallint']) {
  t.test(`a column that becomes ${type} under a trigger that reads it fails no request`, async (t) => {
    const { database, send, update } = await startService(t, 40)
    await database.query(READS)
    const updateAll = async (quantity: number): Promise<void> => {
      const answers = Array.from({ length: 40 }, (_, index) => update(index + 1, quantity))
      for (const { status, text } of await Promise.all(answers)) t.equal(status, 200, text)
      t.equal((await send('GET', '/v1/inventory')).status, 200)
    }
    for (let count = 0; count < 10; count++) {
      if (count === 5) await database.query(`ALTER TABLE inventory ALTER quantity TYPE ${type}`)
      await updateAll(count)
      t.equal((await update(1, 50 + count)).status, 200)
    }
  })
}

t.test('a statement that always fails does not cost a login each time', async (t) => {
  const { owner, pool } = await openPool(t, { size: 3 })
  await owner.query(
    `CREATE FUNCTION fails() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RETURN missing(1); END $$`,
  )
  const call = { name: 'call', text: 'SELECT fails()' }
  for (let round = 0; round < 100; round++)
    for (const result of await Promise.allSettled([1, 2, 3].map(() => pool.query(call))))
      t.match(result, { status: 'rejected', reason: { code: '42883' } })
  const { opened } = pool.statistics()
  t.ok(opened < 30, `${opened} connections were opened for 300 statements`)
})
