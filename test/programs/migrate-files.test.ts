import { cp, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { type TestDatabase, testDatabase, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, type Program, startProgram, temporaryFolder } from '../support/program.ts'

const AFTER = '29990101000000001_add-note'

const noteMigration = `-- A note.

-- Up Migration
ALTER TABLE inventory ADD COLUMN note text;

-- Down Migration
ALTER TABLE inventory DROP COLUMN note;
`

/** The command line as it ships, with a migration that this version does not have. */
interface Checkout {
  readonly database: TestDatabase
  write(text: string): Promise<void>
  /** Starts a process of its own, for signals. */
  start(...args: string[]): Promise<Program>
  run(...args: string[]): Promise<Outcome>
}

async function checkout(t: Test, migration: string, { empty = false } = {}): Promise<Checkout> {
  const database = await testDatabase(t, { empty })
  const folder = await temporaryFolder(t)
  for (const name of ['dist', 'migrations', 'package.json'])
    await cp(name, path.join(folder, name), { recursive: true })
  await symlink(path.resolve('node_modules'), path.join(folder, 'node_modules'))
  const options = { env: { DATABASE_URL: database.url }, programs: path.join(folder, 'dist') }
  const start = (...args: string[]): Promise<Program> =>
    startProgram(t, 'cli', { args: ['migrate', ...args], ...options })
  const write = (text: string): Promise<void> =>
    writeFile(path.join(folder, 'migrations', `${AFTER}.sql`), text)
  await write(migration)
  return {
    database,
    write,
    start,
    run: async (...args) => (await start(...args)).ended,
  }
}

t.test('a connection that is lost, or Ctrl-C, during a migration changes nothing', async (t) => {
  const slow = noteMigration.replace('text;', 'text;\nSELECT pg_sleep(3600);')
  const { database, ...cli } = await checkout(t, slow)
  const running = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
  for (const [end, outcome] of [
    [
      () => database.query(`SELECT pg_terminate_backend(pid) ${running}`),
      {
        code: 1,
        stdout: '',
        stderr: /^inventory: PostgreSQL cannot serve this now: terminating connection /,
      },
    ],
    [
      async ({ process }: Program) => process.kill('SIGINT'),
      { code: 130, stdout: '', stderr: 'inventory: interrupted; nothing was changed\n' },
    ],
  ] as const) {
    const up = await cli.start('up')
    await eventually(
      'the migration to run',
      async () => (await database.query(`SELECT ${running}`))[0],
      120_000,
    )
    await end(up)
    t.match(await up.ended, outcome)
    await eventually('PostgreSQL to end it', async () =>
      (await database.query(`SELECT ${running}`)).length === 0 ? true : undefined,
    )
    t.match(await cli.run('status'), { code: 3, stdout: new RegExp(`${AFTER} +pending`) })
  }
  await cli.write(noteMigration)
  t.match(await cli.run('up'), { code: 0, stdout: `Applied ${AFTER}\n` })
})

t.test('one that fails says why, and no pending migration is applied', async (t) => {
  const invalidType = noteMigration.replace('note text', 'note txt')
  const { database, ...cli } = await checkout(t, invalidType, { empty: true })
  t.match(await cli.run('up'), {
    code: 1,
    stdout: '',
    stderr: `inventory: The migration ${AFTER} failed: type "txt" does not exist; nothing was changed.\n`,
  })
  t.strictSame(await database.query("SELECT to_regclass('inventory') AS found"), [{ found: null }])
  await cli.write(noteMigration.replace('-- Down Migration', '--'))
  t.equal((await cli.run('up')).code, 0)
  t.match(await cli.run('down', '--yes'), {
    code: 1,
    stderr: `inventory: User has disabled down migration on file: ${AFTER}; nothing was changed.\n`,
  })
})

t.test('a run waits for one that is under way, and has nothing left to do', async (t) => {
  const { database, ...cli } = await checkout(t, noteMigration)
  const release = await database.hold('LOCK TABLE inventory IN SHARE MODE')
  const runs = [cli.run('up')]
  await waitForLocks(database)
  runs.push(cli.run('up'))
  await eventually('the second to wait', async () =>
    (
      await database.query(
        "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()",
      )
    ).at(0),
  )
  await release()
  const [first, second] = await Promise.all(runs)
  t.match(first, { code: 0, stdout: `Applied ${AFTER}\n` })
  t.match(second, { code: 0, stdout: 'No migration is pending.\n' })
})
