import t, { type Test } from 'tap'
import type { Database } from '../../../src/database/database.ts'
import { DatabaseUnavailableError } from '../../../src/database/errors/errors.ts'
import { wasRefused } from '../../../src/database/errors/failures.ts'
import { openDatabase, requestLimits } from '../../../src/database/pool/pool.ts'
import { hasCitus, setDistributed } from '../../../src/inventory/updates/distributed.ts'
import { addEntries, type TestDatabase, testDatabase } from '../../support/database.ts'

/** The statements for tables that Citus distributes are also valid for a table of PostgreSQL's own. */
function open(t: Test, { url }: TestDatabase): Database {
  const database = openDatabase({ url, size: 1, limits: requestLimits, onConnectionLost: () => {} })
  t.teardown(() => database.close())
  return database
}

/** The same database, with something that happens after the first statement. */
function withChange(database: Database, change: () => Promise<unknown>): Database {
  let isFirst = true
  return {
    ...database,
    async query(statement, values) {
      if (!isFirst) return database.query(statement, values)
      isFirst = false
      const rows = await database.query<never>(statement, values)
      await change()
      return rows
    },
  }
}

/** The quantities in ascending order of petId. */
async function quantities(database: TestDatabase): Promise<number[]> {
  const rows = await database.query('SELECT quantity FROM inventory ORDER BY pet_id')
  return rows.map(({ quantity }) => Number(quantity))
}

t.test('of a batch, the updates are made whose condition the entry meets', async (t) => {
  const server = await testDatabase(t)
  await addEntries(server, [
    ['1', 1, 'sold'],
    ['2', 2, 'available'],
    ['3', 3, 'sold'],
    ['4', 4, 'sold'],
    ['5', 5, 'pending'],
    ['6', 6, 'sold'],
    ['7', 7, 'sold'],
    ['9007199254740993', 9, 'sold'],
  ])
  const { entries, unmet, hasRules } = await setDistributed(
    open(t, server),
    [
      { petId: 1n, quantity: 10 },
      { petId: 2n, quantity: 20, condition: { anyOf: ['1-sold', '2-available'] } },
      { petId: 3n, quantity: 30, condition: { anyOf: ['1-sold', '2-available'] } },
      { petId: 4n, quantity: 40, condition: { noneOf: ['1-sold', '4-sold'] } },
      { petId: 5n, quantity: 50, condition: { noneOf: ['1-sold', '5-sold'] } },
      { petId: 6n, quantity: 60, condition: { anyOf: [] } },
      { petId: 7n, quantity: 70, condition: { anyOf: ['7-sold'], noneOf: ['7-sold'] } },
      { petId: 9007199254740993n, quantity: 90, condition: { noneOf: [] } },
      { petId: 11n, quantity: 110 },
      { petId: 12n, quantity: 120, condition: { anyOf: ['1-sold'] } },
    ],
    true,
  )
  t.strictSame(
    new Map([...entries].sort(([one], [other]) => Number(one - other))),
    new Map([
      [1n, { petId: 1n, quantity: 10, status: 'sold' }],
      [2n, { petId: 2n, quantity: 20, status: 'available' }],
      [5n, { petId: 5n, quantity: 50, status: 'pending' }],
      [9007199254740993n, { petId: 9007199254740993n, quantity: 90, status: 'sold' }],
    ]),
  )
  t.strictSame(
    [...unmet].sort(),
    [
      [3n, '3-sold'],
      [4n, '4-sold'],
      [6n, '6-sold'],
      [7n, '7-sold'],
    ],
    'a pet without an entry is not among them',
  )
  t.equal(hasRules, false)
  t.strictSame(await quantities(server), [10, 20, 3, 4, 50, 6, 7, 90])
})

t.test('an entry that meets its condition only after the update is not called unmet', async (t) => {
  const server = await testDatabase(t)
  await addEntries(server, [
    ['1', 1, 'sold'],
    ['2', 2, 'sold'],
  ])
  const database = withChange(open(t, server), () =>
    server.query('UPDATE inventory SET quantity = 5 WHERE pet_id = 1'),
  )
  const { entries, unmet } = await setDistributed(
    database,
    [1n, 2n].map((petId) => ({ petId, quantity: 7, condition: { anyOf: ['5-sold'] } })),
    false,
  )
  t.strictSame([[...entries], [...unmet]], [[], [[2n, '2-sold']]])
})

t.test('an error after the updates does not look as if they were not made', async (t) => {
  const server = await testDatabase(t)
  await addEntries(server, [
    ['1', 1, 'sold'],
    ['2', 2, 'sold'],
  ])
  const database = withChange(open(t, server), () => server.query('ALTER TABLE inventory RENAME TO moved'))
  const error: unknown = await setDistributed(
    database,
    [
      { petId: 1n, quantity: 7 },
      { petId: 2n, quantity: 7, condition: { anyOf: ['1-sold'] } },
    ],
    false,
  ).catch((thrown: unknown) => thrown)
  t.ok(error instanceof DatabaseUnavailableError)
  t.equal(wasRefused(error), false)
  await server.query('ALTER TABLE moved RENAME TO inventory')
  t.strictSame(await quantities(server), [7, 2])
})

t.test('it finds rules of the operator that may change an entry, if asked', async (t) => {
  const server = await testDatabase(t)
  const database = open(t, server)
  const hasRules = async (isAsked = true): Promise<boolean> =>
    (await setDistributed(database, [{ petId: 1n, quantity: 1 }], isAsked)).hasRules
  t.equal(await hasCitus(database), false)
  await server.query(
    'CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$',
  )
  for (const [rule, removal, isFound] of [
    [
      'CREATE TRIGGER mine AFTER TRUNCATE ON inventory EXECUTE FUNCTION keep()',
      'DROP TRIGGER mine ON inventory',
      false,
    ],
    [
      'CREATE TRIGGER mine AFTER UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION keep()',
      'DROP TRIGGER mine ON inventory',
      true,
    ],
    [
      'ALTER TABLE inventory ADD CONSTRAINT few CHECK (quantity < 500)',
      'ALTER TABLE inventory DROP CONSTRAINT few',
      true,
    ],
    [
      'ALTER TABLE inventory ENABLE ROW LEVEL SECURITY',
      'ALTER TABLE inventory DISABLE ROW LEVEL SECURITY',
      true,
    ],
  ] as const) {
    await server.query(rule)
    t.equal(await hasRules(), isFound, rule)
    t.equal(await hasRules(false), false)
    await server.query(removal)
  }
})
