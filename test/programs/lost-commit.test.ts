import t, { type Test } from 'tap'
import { runCommand } from '../support/command.ts'
import { addEntries, addKey, stockOf, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, startProgram } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'

/**
 * Returns the address of a database by a way on which the connection is lost around its first COMMIT: before PostgreSQL receives
 * it, or after it has committed. Later connections reach the database.
 */
async function losingCommit(t: Test, databaseUrl: string, moment: 'before' | 'after'): Promise<string> {
  let commit: 'awaited' | 'sent' | 'lost' = 'awaited'
  const relay = await startRelay(t, databaseUrl, {
    towardsDatabase(bytes) {
      if (commit !== 'awaited' || !bytes.includes('COMMIT\0')) return bytes
      commit = moment === 'before' ? 'lost' : 'sent'
      return moment === 'before' ? undefined : bytes
    },
    towardsClient(bytes) {
      if (commit !== 'sent') return bytes
      commit = 'lost'
      return undefined
    },
  })
  return relay.url
}

async function run(t: Test, url: string, args: string[], input?: string): Promise<Outcome> {
  return runCommand(t, args, { env: { DATABASE_URL: url }, ...(input === undefined ? {} : { input }) })
}

t.test(
  'an import whose connection is lost during COMMIT says that its outcome is unknown, and how to find out',
  async (t) => {
    for (const moment of ['before', 'after'] as const) {
      const database = await testDatabase(t)
      await addEntries(database, [['1', 9, 'sold']])
      const url = await losingCommit(t, database.url, moment)
      const outcome = await run(t, url, ['import', '-', '--rows', '2'], 'petId,quantity\n1,5\n2,6\n')
      t.match(outcome, {
        code: 4,
        stdout: '',
        stderr:
          /lost during the commit\. Either all changes were made or none; it is unknown which\. .* To find out, run .* the import again with --dry-run\.\n$/,
      })
      t.notMatch(outcome.stderr, /nothing was changed|\n {4}at /)
      t.equal(await stockOf(database), moment === 'after' ? '1,5,sold\n2,6,available' : '1,9,sold')
    }
  },
)

t.test('a signal during COMMIT ends the command, which says that the outcome is unknown', async (t) => {
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
  t.match(await program.ended, {
    code: 4,
    stdout: '',
    stderr: /it is unknown whether anything was changed\. To find out, run /,
  })
})

t.test('commands for keys say how to find out whether the printed key works', async (t) => {
  for (const moment of ['before', 'after'] as const) {
    for (const command of [
      ['create', '--name', 'new'],
      ['rotate', 'old'],
    ]) {
      const database = await testDatabase(t)
      await addKey(database, 'old')
      const url = await losingCommit(t, database.url, moment)
      const { code, stdout, stderr } = await run(t, url, ['keys', ...command])
      t.equal(code, 4, stderr)
      t.match(stdout, /^inv_\w+\n$/)
      t.match(
        stderr,
        /^The key (new|old) \([0-9a-f]{12}\) .* To find out, run .*"inventory keys list --all"/ms,
      )
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

t.test('migrations whose connection is lost during COMMIT are all applied, or none', async (t) => {
  for (const moment of ['before', 'after'] as const) {
    const database = await testDatabase(t, { empty: true })
    const url = await losingCommit(t, database.url, moment)
    const outcome = await run(t, url, ['migrate', 'up'])
    t.match(outcome, { code: 4, stdout: '', stderr: /To find out, run "inventory migrate status"/ })
    t.notMatch(outcome.stderr, /\n {4}at /)
    const { code, stdout } = await run(t, database.url, ['migrate', 'status'])
    t.equal(code, moment === 'after' ? 0 : 3)
    t.notMatch(stdout, moment === 'after' ? 'pending' : 'applied')
    t.equal((await run(t, database.url, ['migrate', 'up'])).code, 0)
  }
})
