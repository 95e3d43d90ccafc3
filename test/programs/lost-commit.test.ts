import t, { type Test } from 'tap'
import { inventory, runCommand, succeed } from '../support/command.ts'
import { addEntries, addKey, stockOf, type TestDatabase, testDatabase } from '../support/database.ts'
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

for (const moment of ['before', 'after'] as const) {
  const isMade = moment === 'after'

  /** Runs a command that loses its connection, and returns what it says and its database. */
  const lose = async (
    t: Test,
    args: string[],
    input = '',
    empty = false,
  ): Promise<[Outcome, TestDatabase]> => {
    const database = await testDatabase(t, { empty })
    if (!empty) await addKey(database, 'old')
    const env = { DATABASE_URL: await losingCommit(t, database.url, moment) }
    const outcome = await runCommand(t, args, { env, input })
    t.equal(outcome.code, 4, outcome.stderr)
    t.notMatch(outcome.stderr, /nothing was changed|\n {4}at /)
    return [outcome, database]
  }

  t.test(`an import whose connection is lost ${moment} COMMIT says how to find out`, async (t) => {
    const [outcome, database] = await lose(t, ['import', '-', '--rows', '1'], 'petId,quantity\n1,5\n')
    t.match(outcome, {
      stdout: '',
      stderr:
        /unknown whether the change was committed: .*\. To find out, run .* the import again with --dry-run\.\n$/,
    })
    t.equal(await stockOf(database), isMade ? '1,5,available' : '')
  })

  t.test(`so do the commands for keys: ${moment} COMMIT`, async (t) => {
    for (const [args, keys] of [
      [['keys', 'create', '--name', 'new'], { keys: '2', ending: '0' }],
      [['keys', 'rotate', 'old'], { keys: '2', ending: '1' }],
    ] as const) {
      const [{ stdout, stderr }, database] = await lose(t, [...args])
      t.match(stdout, /^inv_\w+\n$/)
      t.match(
        stderr,
        /^The key (new|old) \([0-9a-f]{12}\) .* To find out, run .*"inventory keys list --all"/ms,
      )
      const found = await database.query('SELECT count(*) AS keys, count(revoked_at) AS ending FROM api_keys')
      t.strictSame(found, [isMade ? keys : { keys: '1', ending: '0' }])
    }
  })

  t.test(`so do migrations, of which all are applied, or none: ${moment} COMMIT`, async (t) => {
    const [outcome, { url }] = await lose(t, ['migrate', 'up'], '', true)
    t.match(outcome, { stdout: '', stderr: /To find out, run "inventory migrate status"/ })
    const { code, stdout } = await inventory(t, url, 'migrate', 'status')
    t.equal(code, isMade ? 0 : 3)
    t.notMatch(stdout, isMade ? 'pending' : 'applied')
    await succeed(t, url, 'migrate', 'up')
  })
}

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
