import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { type LostCommit, losingCommit } from '../support/commit-proxy.ts'
import { addEntries, addKey, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, startProgram } from '../support/program.ts'

async function run(t: Test, url: string, args: string[], input?: string): Promise<Outcome> {
  const program = await startProgram(t, 'cli', {
    args,
    env: { DATABASE_URL: url },
    ...(input === undefined ? {} : { input }),
  })
  return program.ended
}

async function entries(database: TestDatabase): Promise<string> {
  const rows = await database.query('SELECT pet_id, quantity FROM inventory ORDER BY pet_id')
  return rows.map((row) => Object.values(row).join(',')).join('\n')
}

async function importLosing(
  t: Test,
  moment: LostCommit,
  isRefusedLater = false,
): Promise<{ outcome: Outcome; stock: string }> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  const url = await losingCommit(t, database.url, moment, isRefusedLater)
  const outcome = await run(t, url, ['import', '-', '--rows', '2'], 'petId,quantity\n1,5\n2,6\n')
  return { outcome, stock: await entries(database) }
}

t.test('an import whose COMMIT lost its answer is reported as done', async (t) => {
  const { outcome, stock } = await importLosing(t, 'after')
  t.match(outcome, { code: 0, stdout: '1 added, 1 changed, 0 unchanged\n' })
  t.equal(stock, '1,5\n2,6')
})

t.test('an import whose COMMIT did not reach PostgreSQL is reported as failed', async (t) => {
  const { outcome, stock } = await importLosing(t, 'before')
  t.match(outcome, { code: 1, stdout: '', stderr: /\ninventory: PostgreSQL cannot serve this now: .*\n$/ })
  t.equal(stock, '1,9')
})

t.test('an import whose outcome cannot be learnt says so, by an exit code of its own', async (t) => {
  for (const moment of ['before', 'after'] as const) {
    const { outcome, stock } = await importLosing(t, moment, true)
    t.match(outcome, {
      code: 4,
      stdout: '',
      stderr: /lost during the commit\. Either all changes were made or none; it is unknown which\./,
    })
    t.notMatch(outcome.stderr, /nothing was changed|\n {4}at /)
    t.equal(stock, moment === 'after' ? '1,5\n2,6' : '1,9')
  }
})

t.test(
  'a signal during COMMIT waits for it, and a second one says that the outcome is unknown',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [['1', 9, 'sold']])
    await database.query(
      `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
     CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON inventory DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION wait()`,
    )
    const program = await startProgram(t, 'cli', {
      args: ['import', '-', '--rows', '1'],
      env: { DATABASE_URL: database.url },
      input: 'petId,quantity\n1,5\n',
    })
    await eventually('COMMIT to run the trigger', async () => {
      const [row] = await database.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'PgSleep'",
      )
      return row && true
    })
    program.process.kill('SIGINT')
    await program.output(/waiting for PostgreSQL/)
    // Sooner, it would count as the same signal, which npm repeats.
    await setTimeout(300)
    program.process.kill('SIGINT')
    t.match(await program.ended, {
      code: 4,
      stdout: '',
      stderr: /waiting for PostgreSQL to complete the commit\n.*it is unknown whether anything was changed/,
    })
  },
)

t.test('commands for keys say what became of the key', async (t) => {
  for (const [moment, isRefusedLater, code, words] of [
    ['after', false, 0, /It is shown only once:\n$/],
    [
      'before',
      false,
      1,
      /\nThe key printed above was not created and does not work; no other key was revoked\.\n/,
    ],
    ['before', true, 4, /\nIt is unknown whether the key printed above works\. .* --id [0-9a-f]{12}"/],
    ['after', true, 4, /\nIt is unknown whether the key printed above works\. /],
  ] as const) {
    for (const command of [
      ['create', '--name', 'new'],
      ['rotate', 'old'],
    ]) {
      const database = await testDatabase(t)
      await addKey(database, 'old')
      const url = await losingCommit(t, database.url, moment, isRefusedLater)
      const { code: found, stdout, stderr } = await run(t, url, ['keys', ...command])
      t.equal(found, code, stderr)
      t.match(stdout, /^inv_\w+\n$/)
      t.match(stderr, words)
      const [row] = await database.query(
        'SELECT count(*) AS keys, count(revoked_at) AS ending FROM api_keys WHERE name IN ($1, $2)',
        ['old', 'new'],
      )
      const isRotation = command[0] === 'rotate'
      t.strictSame(row, {
        keys: moment === 'after' ? '2' : '1',
        ending: moment === 'after' && isRotation ? '1' : '0',
      })
    }
  }
})

t.test('a revocation whose COMMIT lost its answer is reported as done', async (t) => {
  const database = await testDatabase(t)
  await addKey(database, 'old')
  const url = await losingCommit(t, database.url, 'after')
  t.match(await run(t, url, ['keys', 'revoke', 'old']), { code: 0, stderr: /is revoked\.\n$/ })
  t.strictSame(await database.query('SELECT count(*) FROM api_keys WHERE revoked_at IS NULL'), [
    { count: '0' },
  ])
})

t.test('migrations whose COMMIT lost its answer are reported as what they are', async (t) => {
  for (const [moment, isRefusedLater, code, words] of [
    ['after', false, 0, /^$/],
    [
      'before',
      false,
      1,
      /^inventory: PostgreSQL cannot serve this now: Connection terminated unexpectedly\.\n$/,
    ],
    ['after', true, 4, /lost during the commit\. Either all changes were made or none/],
  ] as const) {
    const database = await testDatabase(t, { empty: true })
    const url = await losingCommit(t, database.url, moment, isRefusedLater)
    const outcome = await run(t, url, ['migrate', 'up'])
    t.equal(outcome.code, code, outcome.stderr)
    t.match(outcome.stderr, words)
    t.notMatch(outcome.stderr, /\n {4}at /)
    const [row] = await database.query("SELECT to_regclass('inventory') AS found")
    t.equal(row?.['found'], moment === 'after' ? 'inventory' : null)
  }
})
