import t, { type Test } from 'tap'
import { shortWaits, startService, type TestAppOptions } from '../../support/app.ts'
import { trigger } from '../../support/triggers.ts'

/** How often an update may be sent in its four seconds. */
const MAX_ATTEMPTS = 84

/** The service with a trigger for the pets up to 10 that counts its runs as `attempts`, and then runs a statement. */
async function startTotals(t: Test, statement: string, options?: TestAppOptions) {
  const service = await startService(t, 60, options)
  const { query } = service.database
  const run = `IF NEW.pet_id <= 10 THEN PERFORM nextval('attempts'); ${statement}; END IF`
  await query(`CREATE SEQUENCE attempts; CREATE TABLE totals AS SELECT 1; ${trigger(run)}`)
  const attempts = async () => Number((await query('SELECT last_value FROM attempts'))[0]?.['last_value'])
  return { ...service, attempts }
}

const withoutWaiting = {
  'a row': ['PERFORM FROM totals FOR UPDATE NOWAIT', 'SELECT FROM totals FOR UPDATE'],
  'a table': ['LOCK TABLE totals IN EXCLUSIVE MODE NOWAIT', 'LOCK TABLE totals IN SHARE MODE'],
  'an error of its own': ["RAISE 'no' USING ERRCODE = '55P03'", 'SELECT'],
} as const

for (const [what, [statement, lock]] of Object.entries(withoutWaiting)) {
  t.test(`a trigger that does not wait for ${what} runs once for each update`, async (t) => {
    const { database, update, updateAll, attempts } = await startTotals(t, statement)
    const release = await database.hold(lock)
    t.match(await update(1, 5), { status: 503, text: '"code":"nothing_changed"' })
    t.equal(await attempts(), 1)
    for (const [index, { status }] of (await updateAll(60, 5)).entries())
      t.equal(status, index < 10 ? 503 : 200, `pet ${index + 1}`)
    await release()
  })
}

t.test(
  'an update whose trigger has a lock timeout of its own is sent a bounded number of times',
  async (t) => {
    const statement = 'PERFORM FROM totals FOR UPDATE'
    const { database, update, attempts } = await startTotals(t, statement, { timings: shortWaits })
    await database.query("ALTER FUNCTION act SET lock_timeout = '1ms'")
    const release = await database.hold('SELECT FROM totals FOR UPDATE')
    const text = 'Another transaction has locked the entry or the whole inventory. Nothing was changed.'
    t.match(await update(1, 5), { status: 503, text })
    const count = await attempts()
    t.ok(count > 1 && count <= MAX_ATTEMPTS, `${count} attempts`)
    await release()
    t.equal((await update(1, 6)).status, 200)
  },
)
