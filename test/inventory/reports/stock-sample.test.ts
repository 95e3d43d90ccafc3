import t, { type Test } from 'tap'
import type { Database } from '../../../src/database/database.ts'
import { openDatabase, requestLimits } from '../../../src/database/pool/pool.ts'
import { StockSample } from '../../../src/inventory/reports/stock-sample.ts'
import { type TestDatabase, testDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'

interface Counted {
  readonly database: TestDatabase
  readonly sample: StockSample
  /** How many statements were run. */
  statements(): number
}

/** Counts the entries on one connection, as the probe has it, but with the time that a busy machine takes. */
async function setUp(t: Test): Promise<Counted> {
  const database = await testDatabase(t)
  const limits = { ...requestLimits, connect: 30_000 }
  const probe = openDatabase({ url: database.url, size: 1, limits, onConnectionLost: () => {} })
  t.teardown(() => probe.close())
  let statements = 0
  const counting: Database = {
    ...probe,
    query: (statement: string, values?: readonly unknown[]) => {
      statements += 1
      return probe.query(statement, values)
    },
  }
  return { database, sample: new StockSample(counting), statements: () => statements }
}

const level = (status: string, entries: number, outOfStock: number): object => ({
  status,
  entries,
  outOfStock,
})

t.test('it counts entries by status, over as many statements as it takes', async (t) => {
  const { database, sample, statements } = await setUp(t)
  await database.query(
    `INSERT INTO inventory (pet_id, quantity, status)
     SELECT id, id % 5, CASE WHEN id % 2 = 0 THEN 'sold' ELSE 'available' END FROM generate_series(1, 29998) AS id
     UNION ALL VALUES (-9223372036854775808, 0, 'available'), (9223372036854775807, 1, 'sold')`,
  )
  const levels = await eventually('the count', async () => {
    const found = await sample.read()
    return found.length > 0 ? found : undefined
  })
  t.strictSame(levels, [
    level('available', 15_000, 3001),
    level('pending', 0, 0),
    level('sold', 15_000, 2999),
  ])
  t.ok(statements() > 3, 'no statement counts them all')
})

t.test('however many read it, it counts once in a minute', async (t) => {
  const { database, sample, statements } = await setUp(t)
  const first = await eventually('the count', async () => {
    const found = await Promise.all(Array.from({ length: 20 }, () => sample.read()))
    return found.every((levels) => levels.length > 0) ? found : undefined
  })
  const none = [level('available', 0, 0), level('pending', 0, 0), level('sold', 0, 0)]
  for (const levels of first) t.strictSame(levels, none)
  await database.query("INSERT INTO inventory VALUES (1, 0, 'sold')")
  t.strictSame(await sample.read(), none)
  t.equal(statements(), 1)
})

t.test('it counts nothing before the first read, and has no value if it cannot count', async (t) => {
  const { database, sample, statements } = await setUp(t)
  await database.query('ALTER TABLE inventory RENAME TO other')
  t.equal(statements(), 0)
  t.strictSame(await sample.read(), [])
  t.equal(statements(), 1)
})
