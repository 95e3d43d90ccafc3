import t from 'tap'
import { openDatabase, requestLimits } from '../../src/database/pool.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { backend, backendOf, openPool } from '../support/pool.ts'

t.test(
  'a connection that is kept for the next statement counts as idle, and as lost when it ends',
  async (t) => {
    const { owner, pool, lost } = await openPool(t)
    // The first one goes through the pool.
    await pool.query(backend)
    const before = await backendOf(pool)
    t.match(pool.statistics(), { used: 0, idle: 1, waiting: 0, opened: 1 })
    await owner.query('SELECT pg_terminate_backend($1)', [before])
    await eventually('the lost connection', async () => (lost.length > 0 ? true : undefined))
    t.match(pool.statistics(), { used: 0, idle: 0 })
    t.not(await backendOf(pool), before)
    t.equal(lost.length, 1)
  },
)

t.test('callers take turns when there are more of them than connections', async (t) => {
  const { pool } = await openPool(t)
  const rows = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      pool.query<{ n: number }>('SELECT $1::integer AS n', [n]).then(([row]) => row?.n),
    ),
  )
  t.strictSame(
    rows,
    Array.from({ length: 50 }, (_, n) => n),
  )
})

t.test('every connection is free again after statements that ran at the same time', async (t) => {
  const { pool } = await openPool(t, { size: 3 })
  for (let round = 0; round < 3; round++)
    await Promise.all(Array.from({ length: 3 }, () => pool.query(backend)))
  t.match(pool.statistics(), { used: 0, idle: 3, waiting: 0, opened: 3 })
})

t.test('a connection that is always in use is replaced at the end of its lifetime', async (t) => {
  const { pool } = await openPool(t, { lifetimeSeconds: 1 })
  const before = await backendOf(pool)
  const deadline = performance.now() + 30_000
  while ((await backendOf(pool)) === before) {
    if (performance.now() > deadline) throw new Error('Waited 30 s for another connection')
  }
})

t.test('closing a pool closes the connection that is kept', async (t) => {
  const owner = await testDatabase(t)
  const pool = openDatabase({ url: owner.url, size: 1, limits: requestLimits, onConnectionLost: () => {} })
  await pool.query(backend)
  const kept = await backendOf(pool)
  await pool.close()
  await eventually('the end of the connection', async () => {
    const rows = await owner.query('SELECT FROM pg_stat_activity WHERE pid = $1', [kept])
    return rows.length === 0 ? true : undefined
  })
})
