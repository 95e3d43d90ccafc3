import t, { type Test } from 'tap'
import type { Database } from '../../src/database/database.ts'
import { openDatabase } from '../../src/database/pool.ts'
import { requestLimits } from '../../src/database/pool-options.ts'
import { isStatementRunning } from '../../src/database/server-status.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { backend, backendOf } from '../support/pool.ts'

const limits = { ...requestLimits, lock: 600_000, statement: 600_000, answer: 100 }

/** A statement that runs until `release` is called. */
const waiting = { name: 'waiting', text: 'SELECT pg_advisory_xact_lock(1)' }

interface LatePool {
  readonly pool: Database
  /** The server process whose statement is late. */
  readonly late: number | undefined
  /** Has the late statement answered. */
  release(): Promise<void>
}

/** A pool of two connections, one of which is late. At the end, the pool is closed before the statement is answered. */
async function withLate(t: Test, isRunning: (pid: number) => Promise<boolean>): Promise<LatePool> {
  const owner = await testDatabase(t)
  const end = await owner.hold('SELECT pg_advisory_xact_lock(1)')
  let ended: Promise<void> | undefined
  const release = (): Promise<void> => {
    ended ??= end()
    return ended
  }
  t.teardown(release)
  const pool = openDatabase({
    url: owner.url,
    size: 2,
    limits,
    isRunning,
    onConnectionLost: () => {},
  })
  t.teardown(() => pool.close())
  const late = await backendOf(pool)
  await t.rejects(pool.query(waiting), { cause: { message: 'PostgreSQL did not respond in time' } })
  return { pool, late, release }
}

t.test('the connection of a late statement is in use until PostgreSQL answers', async (t) => {
  let checks = 0
  const { pool, late, release } = await withLate(t, async () => ++checks > 0)
  t.match(pool.statistics(), { used: 1, idle: 0 })
  t.not(await backendOf(pool), late, 'another statement runs on another connection')
  await eventually('several checks', async () => checks > 2)
  t.match(pool.statistics(), { used: 1, idle: 1, opened: 2 })
  await release()
  await eventually('the answer', async () => pool.statistics().used === 0)
  const backends = await Promise.all([1, 2].map(() => backendOf(pool)))
  t.ok(backends.includes(late), 'it is used again')
  t.equal(pool.statistics().opened, 2)
})

t.test('the connection of a late statement is closed once no such statement runs', async (t) => {
  let answer = (_areRunning: boolean): void => {}
  const { pool } = await withLate(t, () => new Promise((resolve) => (answer = resolve)))
  await eventually('the connection to be closed', async () => {
    answer(false)
    return pool.statistics().used === 0
  })
  t.match(await pool.query(backend), [{ pid: Number }])
})

t.test('PostgreSQL says whether the late statement runs, whatever else the role runs', async (t) => {
  const asked: number[] = []
  const { pool, late, release } = await withLate(t, async (pid) => asked.push(pid) > 0)
  await eventually('a check', async () => asked.length > 0)
  t.equal(asked[0], late)
  t.equal(await isStatementRunning(pool, late ?? 0), true)
  t.equal(await isStatementRunning(pool, 0), false)
  await release()
  await eventually('its end', async () => !(await isStatementRunning(pool, late ?? 0)))
})
