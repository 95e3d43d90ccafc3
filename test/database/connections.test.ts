import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { backend, backendOf, openPool } from '../support/pool.ts'

t.test('a connection counts as idle between two statements, and as lost when it ends', async (t) => {
  const { owner, pool, lost } = await openPool(t)
  await pool.query(backend)
  const before = await backendOf(pool)
  t.match(pool.statistics(), { used: 0, idle: 1, waiting: 0, opened: 1 })
  await owner.query('SELECT pg_terminate_backend($1)', [before])
  await eventually('the lost connection', async () => lost.length > 0)
  t.match(pool.statistics(), { used: 0, idle: 0 })
  t.not(await backendOf(pool), before)
  t.equal(lost.length, 1)
})

t.test('a connection whose settings did not take effect is refused, as are those of a pooler', async (t) => {
  // A pooler that ignores the options of the startup message leaves the parameter unset.
  const { pool } = await openPool(t, { settings: { 'inventory.session': '' } })
  await t.rejects(pool.query(backend), {
    cause: {
      message: 'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)',
    },
  })
})
