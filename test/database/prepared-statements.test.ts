import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { backend, openPool } from '../support/pool.ts'
import { countingFilter, startRelay } from '../support/relay.ts'

const values = { name: 'values', text: 'SELECT $1::bigint + 1 AS next, $2::text AS word, true AS yes' }

t.test('values arrive by their types, the first time and afterward', async (t) => {
  const { pool } = await openPool(t)
  for (let round = 0; round < 3; round++) {
    const rows = await pool.query(values, [9_007_199_254_740_992n, null])
    t.strictSame(rows, [{ next: 9_007_199_254_740_993n, word: null, yes: true }])
  }
  t.strictSame(await pool.query(values, ['1', 'é']), [{ next: 2n, word: 'é', yes: true }])
  for (let round = 0; round < 2; round++) {
    t.strictSame(await pool.query({ name: 'none', text: 'SELECT 1 AS one WHERE false' }), [])
    t.strictSame(await pool.query({ name: 'nothing', text: 'SET LOCAL work_mem = 64' }), [])
    const many = { name: 'many', text: 'SELECT unnest($1::text[]) AS letter' }
    t.strictSame(await pool.query(many, ['{a,NULL}']), [{ letter: 'a' }, { letter: null }])
  }
})

t.test('a statement with a name is parsed and described once for each connection', async (t) => {
  const { url } = await testDatabase(t)
  const descriptions = countingFilter('length\0')
  const relay = await startRelay(t, url, { towardsClient: descriptions.filter })
  const { pool } = await openPool(t, { url: relay.url })
  const lengths = { name: 'lengths', text: 'SELECT cardinality($1::text[]) AS length' }
  for (const array of ['{a}', '{a,b}', '{}']) await pool.query(lengths, [array])
  t.equal(descriptions.count, 1, 'a description names the columns')
  t.strictSame(await pool.query('SELECT name FROM pg_prepared_statements'), [{ name: 'lengths' }])
})

t.test('after a statement that is rejected, the connection is used again', async (t) => {
  const { owner, pool, lost } = await openPool(t)
  const insert = { name: 'insert', text: 'INSERT INTO later VALUES ($1) RETURNING n' }
  await t.rejects(pool.query(insert, [1]), { cause: { code: '42P01' } }, 'when it is parsed')
  const before = await pool.query(backend)
  await owner.query('CREATE TABLE later (n integer CHECK (n > 0))')
  await t.rejects(pool.query(insert, [-1]), { cause: { code: '23514' } }, 'when it is executed')
  await t.rejects(pool.query(insert, ['x']), { cause: { code: '22P02' } }, 'for a value')
  t.strictSame(await pool.query(insert, [1]), [{ n: 1 }])
  t.strictSame(await pool.query(insert, [2]), [{ n: 2 }])
  t.strictSame(await pool.query(backend), before)
  t.strictSame(lost, [])
})
