import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { runner } from 'node-pg-migrate'
import pg from 'pg'
import t, { type Test } from 'tap'
import { listLimits } from '../../../src/database/pool-options.ts'
import { longTimings, startApp } from '../../support/app.ts'
import { runCommand } from '../../support/command.ts'
import { type TestDatabase, testDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { type Outcome, temporaryFolder } from '../../support/program.ts'

const ENTRIES = 2000

/** An advisory lock that the test holds while a migration must not commit yet. */
const GATE = 4711

const fill = (database: TestDatabase): Promise<unknown> =>
  database.query(`INSERT INTO inventory SELECT n, n, 'available' FROM generate_series(1, ${ENTRIES}) n`)

/** Resolves when a session waits for a lock on a table, and that statement is not the migration's. */
const someoneWaits = (database: TestDatabase, application: string): Promise<true> =>
  eventually(`a session of ${application} that waits for a table`, async () => {
    const waiting = await database.query(
      `SELECT FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE $1
         AND wait_event_type = 'Lock' AND wait_event = 'relation'`,
      [application],
    )
    return waiting.length > 0
  })

/**
 * Applies a migration with that statement, as `inventory migrate up` does, and calls `whileOpen` when the statement is
 * done and the commit is still to come.
 */
async function migrateWith(
  t: Test,
  database: TestDatabase,
  statement: string,
  whileOpen: () => Promise<void>,
): Promise<void> {
  const dir = path.join(await temporaryFolder(t), 'migrations')
  await mkdir(dir)
  await writeFile(
    path.join(dir, '29991231000000000_rewrite.sql'),
    `-- Up Migration
     SET LOCAL lock_timeout = '2s';
     ${statement};
     SET LOCAL lock_timeout = 0;
     SELECT pg_advisory_xact_lock(${GATE});
     -- Down Migration`,
  )
  const gate = new pg.Client({ connectionString: database.url })
  const client = new pg.Client({ connectionString: database.url, application_name: 'the migration' })
  await Promise.all([gate.connect(), client.connect()])
  try {
    await gate.query('SELECT pg_advisory_lock($1)', [GATE])
    const migrated = runner({
      dbClient: client,
      dir,
      direction: 'up',
      migrationsTable: 'pgmigrations',
      checkOrder: false,
      log: () => {},
    })
    await eventually('the migration at its gate', async () => {
      const [row] = await database.query(
        "SELECT FROM pg_stat_activity WHERE application_name = 'the migration' AND wait_event = 'advisory'",
      )
      return row
    })
    await whileOpen()
    await gate.query('SELECT pg_advisory_unlock($1)', [GATE])
    await migrated
  } finally {
    await Promise.all([gate.end(), client.end()])
  }
}

const rewrites = [
  ['changes the type of a column', 'ALTER TABLE inventory ALTER COLUMN quantity TYPE bigint'],
  [
    'adds a column with a volatile default',
    'ALTER TABLE inventory ADD noted timestamptz DEFAULT clock_timestamp()',
  ],
  [
    'replaces the rows',
    `CREATE TEMPORARY TABLE rows ON COMMIT DROP AS SELECT * FROM inventory;
     TRUNCATE inventory;
     INSERT INTO inventory SELECT * FROM rows`,
  ],
] as const

for (const [what, statement] of rewrites) {
  t.test(`a list that waited for a migration that ${what} is whole`, async (t) => {
    const database = await testDatabase(t)
    await fill(database)
    for (const isFirst of [true, false]) {
      const { send } = await startApp(t, database.url)
      // One app has read the list before and asks what changed; the other reads it for the first time.
      if (!isFirst) {
        await send('GET', '/v1/inventory')
        await database.query('UPDATE inventory SET quantity = 7 WHERE pet_id = 7')
      }
      await database.query("DELETE FROM pgmigrations WHERE name LIKE '2999%'")
      await database.query('ALTER TABLE inventory DROP COLUMN IF EXISTS noted, ALTER quantity TYPE integer')
      let list: ReturnType<typeof send> | undefined
      await migrateWith(t, database, statement, async () => {
        list = send('GET', '/v1/inventory')
        await someoneWaits(database, 'petstore-inventory')
      })
      const { status, text } = (await list) ?? {}
      t.equal(status, 200)
      t.equal(JSON.parse(text ?? '').length, ENTRIES)
    }
  })
}

t.test(
  'with another isolation level by default, a list that waited shows the rows that replaced others',
  async (t) => {
    for (const pooler of ['', 'transaction']) {
      const database = await testDatabase(t)
      const options = encodeURIComponent('-c default_transaction_isolation=serializable')
      const { send } = await startApp(t, `${database.url}?options=${options}`, {
        env: { DATABASE_POOLER: pooler },
      })
      t.equal((await send('GET', '/v1/inventory')).text, '[]')
      await database.query("INSERT INTO inventory VALUES (1, 1, 'available')")
      const commit = await database.hold(
        "TRUNCATE inventory; INSERT INTO inventory VALUES (2, 2, 'available')",
        'COMMIT',
      )
      const list = send('GET', '/v1/inventory')
      await someoneWaits(database, 'petstore-inventory')
      await commit()
      t.equal((await list).text, '[{"petId":2,"quantity":2,"status":"available"}]')
    }
  },
)

t.test('an export that waited for a migration is whole', async (t) => {
  const database = await testDatabase(t)
  await fill(database)
  let ended: Promise<Outcome> | undefined
  await migrateWith(t, database, rewrites[0][1], async () => {
    ended = runCommand(t, ['export'], { env: { DATABASE_URL: database.url } })
    await someoneWaits(database, 'petstore-inventory cli')
  })
  const { code, stdout } = (await ended) ?? {}
  t.equal(code, 0)
  t.equal(stdout?.trimEnd().split('\n').length, ENTRIES + 1)
})

for (const pooler of ['', 'transaction']) {
  const title =
    'a list is refused when it has waited for a lock for its limit, and served when the table is free'
  t.test(`${title}, DATABASE_POOLER=${pooler}`, async (t) => {
    t.ok(listLimits.lock <= 2000, 'two seconds')
    const database = await testDatabase(t)
    await fill(database)
    const { send, log } = await startApp(t, database.url, {
      timings: { lists: { ...listLimits, lock: 500, answer: 20_000 } },
      env: { DATABASE_POOLER: pooler },
    })
    const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
    // Nothing but the limit ends these: the lock lasts until all of them are answered.
    const lists = Array.from({ length: 5 }, () => send('GET', '/v1/inventory'))
    for (const { status, headers, text } of await Promise.all(lists)) {
      t.equal(status, 503)
      t.match(headers['retry-after'], /^[1-9]\d*$/)
      t.match(text, '"code":"service_unavailable"')
    }
    t.match(JSON.stringify(log), 'canceling statement due to lock timeout')
    t.notOk(
      log.some((line) => line['msg'] === 'a database connection was lost'),
      'the connection is kept, as it was not the limit of an answer',
    )
    await release()
    t.equal((await send('GET', '/v1/inventory')).status, 200)
  })
}

t.test(
  'behind a pooler, a list waits for a lock longer than the time limit of the role for statements',
  async (t) => {
    const database = await testDatabase(t)
    const options = encodeURIComponent('-c statement_timeout=300')
    const { send } = await startApp(t, `${database.url}?options=${options}`, {
      timings: longTimings,
      env: { DATABASE_POOLER: 'transaction' },
    })
    t.equal((await send('GET', '/v1/inventory')).text, '[]')
    await database.query("INSERT INTO inventory VALUES (1, 1, 'available')")
    const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
    const list = send('GET', '/v1/inventory')
    await eventually('the read of all entries to wait for a second', async () => {
      const [row] = await database.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'SET TRANSACTION%'
           AND query_start < clock_timestamp() - interval '1 second'`,
      )
      return row
    })
    await release()
    t.match(await list, { status: 200, text: '[{"petId":1,"quantity":1,"status":"available"}]' })
  },
)
