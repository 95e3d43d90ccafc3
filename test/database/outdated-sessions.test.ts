import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { startService } from '../support/app.ts'
import { openPool } from '../support/pool.ts'
import { trigger } from '../support/triggers.ts'

const CONNECTIONS = 4

/** Triggers whose sessions remember something, and statements after which that is wrong. */
const outdated = {
  'the plan of a function': [
    `DECLARE most record; BEGIN SELECT quantity INTO most FROM limits; IF NEW.quantity > most.quantity THEN RETURN NULL; END IF; END`,
    'ALTER TABLE limits ALTER quantity TYPE bigint',
  ],
  'a setting': ["PERFORM set_config('search_path', 'pg_temp', false)", 'DROP TRIGGER act ON inventory'],
} as const

for (const [what, [code, change]] of Object.entries(outdated)) {
  t.test(
    `a session that remembers ${what} fails once, also beside an update that always fails`,
    async (t) => {
      const env = { DATABASE_POOL_SIZE: String(CONNECTIONS + 1) }
      const { database, update, updateAll } = await startService(t, 20, { env })
      await database.query(`CREATE TABLE limits AS SELECT 99 AS quantity; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM missing(); END $$; CREATE TRIGGER fail BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id = 20)
      EXECUTE FUNCTION fail()`)
      await updateAll(19, 1)
      await database.query(trigger(code))
      await Promise.all([updateAll(19, 2), update(20, 1)])
      // Younger connections stay.
      await setTimeout(1100)
      await database.query(change)
      const statuses: number[] = []
      for (let round = 0; round < 20; round++) {
        const [answers, failing] = await Promise.all([updateAll(19, round), update(20, 1)])
        t.not(failing.status, 200)
        statuses.push(...answers.map(({ status }) => status))
      }
      const failures = statuses.filter((status) => status !== 200)
      t.ok(
        failures.length <= CONNECTIONS,
        `${failures.length} of ${statuses.length} updates failed: ${failures}`,
      )
    },
  )
}

t.test('a statement that always fails costs no login each time', async (t) => {
  const size = 3
  const { pool } = await openPool(t, { size })
  const call = { name: 'call', text: 'SELECT missing(1)' }
  const startedAt = performance.now()
  for (let round = 0; round < 100; round++)
    for (const result of await Promise.allSettled([1, 2, 3].map(() => pool.query(call))))
      t.match(result, { status: 'rejected', reason: { cause: { code: '42883' } } })
  const { opened } = pool.statistics()
  const seconds = (performance.now() - startedAt) / 1000
  t.ok(opened <= size * (1 + seconds), `${opened} connections were opened for 300 statements in ${seconds} s`)
})
