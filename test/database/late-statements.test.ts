import t, { type Test } from 'tap'
import type { Database } from '../../src/database/database.ts'
import { openDatabase } from '../../src/database/pool.ts'
import { requestLimits } from '../../src/database/pool-options.ts'
import { isStatementRunning } from '../../src/database/server-status.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { backendOf, openPool } from '../support/pool.ts'

const limits = { ...requestLimits, lock: 600_000, statement: 600_000, answer: 100 }

/** A statement that runs until another session releases its lock. */
const waiting = { name: 'waiting', text: 'SELECT pg_advisory_xact_lock(1)' }

/** A pool of two connections, one of which is late until `release` is called. */
async function withLate(
  t: Test,
  isRunning: (database: Database, pid: number) => Promise<boolean>,
): Promise<{ pool: Database; late: number | undefined; release(): Promise<void> }> {
  const { owner, pool } = await openPool(t, { size: 2, limits, isRunning: (pid) => isRunning(pool, pid) })
  const release = await owner.hold(waiting.text)
  const late = await backendOf(pool)
  await t.rejects(pool.query(waiting), { cause: { message: 'PostgreSQL did not respond in time' } })
  t.match(pool.statistics(), { used: 1, idle: 0 })
  t.not(await backendOf(pool), late, 'another statement runs on another connection')
  return { pool, late, release }
}

t.test('the connection of a late statement is in use until PostgreSQL answers', async (t) => {
  const checks: [number, boolean][] = []
  const { pool, late, release } = await withLate(t, async (database, pid) => {
    const isRunning = await isStatementRunning(database, pid)
    checks.push([pid, isRunning])
    return isRunning
  })
  await eventually('several checks', async () => checks.length > 1)
  t.strictSame(checks[1], [late, true])
  t.equal(await isStatementRunning(pool, 0), false, 'whatever else the role runs')
  t.match(pool.statistics(), { used: 1, idle: 1, opened: 2 })
  await release()
  await eventually('the answer', async () => pool.statistics().used === 0)
  const backends = await Promise.all([1, 2].map(() => backendOf(pool)))
  t.ok(backends.includes(late), 'it is used again')
  t.equal(pool.statistics().opened, 2)
})

t.test('it is closed once its process runs no statement, as after a lost response', async (t) => {
  const { pool, release } = await withLate(t, async () => false)
  await eventually('the connection to be closed', async () => pool.statistics().used === 0)
  await release()
})

t.test('a pool closes in spite of a late statement', async (t) => {
  const owner = await testDatabase(t)
  const release = await owner.hold(waiting.text)
  const isRunning = async (): Promise<boolean> => true
  const pool = openDatabase({ url: owner.url, size: 1, limits, isRunning, onConnectionLost: () => {} })
  await t.rejects(pool.query(waiting), { cause: { message: 'PostgreSQL did not respond in time' } })
  await pool.close()
  await release()
})
