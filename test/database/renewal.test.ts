import t from 'tap'
import { startService } from '../support/app.ts'
import { openPool } from '../support/pool.ts'
import { trigger } from '../support/triggers.ts'

/** The code of an operator's trigger that reads the column whose type is changed. */
const READS = `DECLARE entry record; BEGIN
    SELECT quantity INTO entry FROM inventory WHERE pet_id = NEW.pet_id;
    IF entry.quantity < 0 OR NEW.quantity < 0 THEN RETURN NULL; END IF;
  END`

for (const type of ['bigint', 'smallint']) {
  t.test(`a column that becomes ${type} under a trigger that reads it fails no request`, async (t) => {
    const { database, send, update, updateAll } = await startService(t, 40)
    await database.query(trigger(READS))
    for (let count = 0; count < 10; count++) {
      if (count === 5) await database.query(`ALTER TABLE inventory ALTER quantity TYPE ${type}`)
      for (const { status, text } of await updateAll(40, count)) t.equal(status, 200, text)
      t.equal((await send('GET', '/v1/inventory')).status, 200)
      t.equal((await update(1, 50 + count)).status, 200)
    }
  })
}

t.test('a statement that always fails does not cost a login each time', async (t) => {
  const { owner, pool } = await openPool(t, { size: 3 })
  const body = '$$ BEGIN RETURN missing(1); END $$'
  await owner.query(`CREATE FUNCTION fails() RETURNS integer LANGUAGE plpgsql AS ${body}`)
  const call = { name: 'call', text: 'SELECT fails()' }
  for (let round = 0; round < 100; round++)
    for (const result of await Promise.allSettled([1, 2, 3].map(() => pool.query(call))))
      t.match(result, { status: 'rejected', reason: { cause: { code: '42883' } } })
  const { opened } = pool.statistics()
  t.ok(opened < 30, `${opened} connections were opened for 300 statements`)
})
