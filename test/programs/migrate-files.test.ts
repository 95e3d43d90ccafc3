import { cp, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../support/command.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, type Program, startProgram, temporaryFolder } from '../support/program.ts'

const AFTER = '29990101000000001_add-note'

const noteMigration = `-- A note.

-- Up Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE inventory ADD COLUMN note text;

-- Down Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE inventory DROP COLUMN note;
`

/** The command line as it ships, with more migrations than this version has. */
interface Checkout {
  readonly database: TestDatabase
  write(migration: string, text: string): Promise<void>
  /** Starts a process of its own, for signals. */
  start(...args: string[]): Promise<Program>
  run(...args: string[]): Promise<Outcome>
  /** The exit code of `status` and the states of the migrations that are not applied. */
  states(): Promise<[code: number | null, states: Record<string, string>]>
}

async function checkout(t: Test, migration?: string, { empty = false } = {}): Promise<Checkout> {
  const database = await testDatabase(t, { empty })
  const folder = await temporaryFolder(t)
  for (const name of ['dist', 'migrations', 'package.json'])
    await cp(name, path.join(folder, name), { recursive: true })
  await symlink(path.resolve('node_modules'), path.join(folder, 'node_modules'))
  const options = { env: { DATABASE_URL: database.url }, programs: path.join(folder, 'dist') }
  const run = (...args: string[]): Promise<Outcome> => runCommand(t, ['migrate', ...args], options)
  const write = (name: string, text: string): Promise<void> =>
    writeFile(path.join(folder, 'migrations', `${name}.sql`), text)
  if (migration !== undefined) await write(AFTER, migration)
  return {
    database,
    write,
    run,
    start: (...args) => startProgram(t, 'cli', { args: ['migrate', ...args], ...options }),
    async states() {
      const { code, stdout } = await run('status', '--json')
      const records: { name: string; state: string }[] = JSON.parse(stdout)
      const others = records.filter(({ state }) => state !== 'applied')
      return [code, Object.fromEntries(others.map(({ name, state }) => [name, state]))]
    },
  }
}

t.test(
  'a part may have any number of statements, and functions with semicolons in their bodies',
  async (t) => {
    const { database, ...cli } = await checkout(
      t,
      `-- Notes each change.

-- Up Migration
SET LOCAL lock_timeout = '2s';

CREATE TABLE changes (pet_id bigint, note text DEFAULT ';');
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO changes (pet_id) VALUES (NEW.pet_id);
  -- {braces} and '' stay as they are;
  RETURN NULL;
END
$$;
CREATE TRIGGER note_change AFTER INSERT OR UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION note_change();

-- Down Migration
SET LOCAL lock_timeout = '2s';

DROP TRIGGER note_change ON inventory;
DROP FUNCTION note_change();
DROP TABLE changes -- without a semicolon
`,
    )
    const dry = await cli.run('up', '--dry-run')
    t.match(dry.stdout, /^BEGIN;\n-- Up Migration\n[\s\S]*\n {2}-- \{braces\}[\s\S]*;\nCOMMIT;\n$/)
    t.match(await cli.run('up'), { code: 0, stdout: `Applied ${AFTER}\n` })
    await database.query("INSERT INTO inventory VALUES (7, 1, 'sold')")
    t.strictSame(await database.query('SELECT * FROM changes'), [{ pet_id: '7', note: ';' }])
    t.match(await cli.run('down', '--yes'), { code: 0, stdout: `Rolled back ${AFTER}\n` })
    t.strictSame(await database.query("SELECT to_regproc('note_change') AS found"), [{ found: null }])
  },
)

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
    const isRunning = async (): Promise<unknown> => {
      if (up.process.exitCode !== null) throw new Error(JSON.stringify(await up.ended))
      return (await database.query(`SELECT ${running}`))[0]
    }
    await eventually('the migration to run', isRunning, 120_000)
    await end(up)
    t.match(await up.ended, outcome)
    await eventually('PostgreSQL to end it', async () =>
      (await database.query(`SELECT ${running}`)).length === 0 ? true : undefined,
    )
    t.strictSame(await cli.states(), [3, { [AFTER]: 'pending' }])
  }
  await cli.write(AFTER, noteMigration)
  t.equal((await cli.run('up')).code, 0)
})

t.test('one that fails says where, and changes nothing', async (t) => {
  const invalidType = noteMigration.replace('note text', 'note txt')
  const { database, ...cli } = await checkout(t, invalidType, { empty: true })
  t.match(await cli.run('up'), {
    code: 1,
    stdout: '',
    stderr: `inventory: The migration ${AFTER} failed: type "txt" does not exist, in line 6 of migrations/${AFTER}.sql; nothing was changed.\n`,
  })
  t.strictSame(await database.query("SELECT to_regclass('pgmigrations') AS found"), [{ found: null }])
  for (const invalid of [
    noteMigration.replace('-- Up Migration', '-- Up Migration (no transaction)'),
    `${noteMigration}\n-- Down Migration\nDROP TABLE inventory;\n`,
  ]) {
    await cli.write(AFTER, invalid)
    t.match(await cli.run('up'), {
      code: 1,
      stderr: `inventory: migrations/${AFTER}.sql must have a line "-- Up Migration" and after it a line "-- Down Migration"; nothing was changed.\n`,
    })
  }
})

t.test('a file counts as changed until it is restored, but not for its line endings', async (t) => {
  const { database, ...cli } = await checkout(t)
  const windows = noteMigration.replaceAll('\n', '\r\n')
  await cli.write(AFTER, windows)
  t.match(await cli.run('up'), { code: 0, stdout: `Applied ${AFTER}\n` })
  t.strictSame(await cli.states(), [0, {}])
  await cli.write(AFTER, noteMigration)
  t.strictSame(await cli.states(), [0, {}])

  await cli.write(AFTER, noteMigration.replace('note text', 'note varchar'))
  t.strictSame(await cli.states(), [3, { [AFTER]: 'changed' }])
  t.match(await cli.run('up'), { code: 0, stdout: 'No migration is pending.\n' })
  t.strictSame(await cli.states(), [3, { [AFTER]: 'changed' }], 'another run does not hide it')
  await cli.write(AFTER, noteMigration)
  t.strictSame(await cli.states(), [0, {}])

  // As versions left it that did not record checksums.
  await database.query('UPDATE pgmigrations SET checksum = NULL')
  t.strictSame(await cli.states(), [0, {}])
  await cli.run('up')
  await cli.write(AFTER, noteMigration.replace('note text', 'note varchar'))
  t.strictSame(await cli.states(), [3, { [AFTER]: 'changed' }], 'the run has recorded its checksum')
})
