import { cp, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { knownMigrations } from '../../src/database/migrations/files.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, type Program, startProgram, temporaryFolder } from '../support/program.ts'
import { type TestRole, testRole } from '../support/roles.ts'

const INDEX = '29990101000000000_add-index'
/** Keeps a snapshot, as a backup does, for which CREATE INDEX CONCURRENTLY waits. */
const SNAPSHOT = 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT * FROM inventory'
const AFTER = '29990101000000001_add-note'

const indexMigration = `-- Finds entries by status.

-- Up Migration (no transaction)
SET lock_timeout = '1s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_status_idx;
CREATE INDEX CONCURRENTLY inventory_status_idx ON inventory (status); -- 'a;
-- a comment

-- Down Migration (no transaction)
SET lock_timeout = '1s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_status_idx;
`

const noteMigration = `-- A note.

-- Up Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE inventory ADD COLUMN note text;

-- Down Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE inventory DROP COLUMN note;
`

/** The command line as it ships, with more migrations than this version has. */
class Checkout {
  readonly #t: Test
  readonly #folder: string
  readonly #url: string

  constructor(t: Test, folder: string, url: string) {
    this.#t = t
    this.#folder = folder
    this.#url = url
  }

  write(migration: string, text: string): Promise<void> {
    return writeFile(path.join(this.#folder, 'migrations', `${migration}.sql`), text)
  }

  start(...args: string[]): Promise<Program> {
    return startProgram(this.#t, 'cli', {
      args: ['migrate', ...args],
      env: { DATABASE_URL: this.#url },
      programs: path.join(this.#folder, 'dist'),
    })
  }

  async run(...args: string[]): Promise<Outcome> {
    return (await this.start(...args)).ended
  }

  /** The exit code of `status` and the states of the migrations that are not applied. */
  async states(): Promise<[code: number | null, states: Record<string, string>]> {
    const { code, stdout } = await this.run('status', '--json')
    const records: { name: string; state: string }[] = JSON.parse(stdout)
    const others = records.filter(({ state }) => state !== 'applied')
    return [code, Object.fromEntries(others.map(({ name, state }) => [name, state]))]
  }
}

interface CheckoutOptions {
  readonly empty?: boolean
  /** Whose address of the database the command line has; by default the owner's. */
  readonly role?: TestRole
}

async function checkout(t: Test, migrations: Record<string, string>, options: CheckoutOptions = {}) {
  const { empty = false, role } = options
  const database = await testDatabase(t, { empty })
  const folder = await temporaryFolder(t)
  for (const name of ['dist', 'migrations', 'package.json'])
    await cp(name, path.join(folder, name), { recursive: true })
  await symlink(path.resolve('node_modules'), path.join(folder, 'node_modules'))
  const made = new Checkout(t, folder, role?.urlOf(database.url) ?? database.url)
  for (const [name, text] of Object.entries(migrations)) await made.write(name, text)
  return { database, checkout: made }
}

async function indexes(database: TestDatabase): Promise<Record<string, string | null>[]> {
  return database.query(
    `SELECT relname AS name, indisvalid AS valid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
     WHERE relname = 'inventory_status_idx'`,
  )
}

/** Waits until the migration builds or drops the index and waits for the transactions that are open. */
async function untilItWaits(database: TestDatabase): Promise<void> {
  await eventually('a migration that waits for a transaction', async () => {
    const [found] = await database.query(
      "SELECT pid FROM pg_stat_activity WHERE query LIKE '%INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'",
    )
    return found
  })
}

t.test('a migration takes as long as it needs, whatever the time limits of the database', async (t) => {
  const slow = '-- Slow.\n\n-- Up Migration\nSELECT pg_sleep(1.5);\n\n-- Down Migration\n'
  const { database, checkout: cli } = await checkout(t, { [AFTER]: slow })
  const name = new URL(database.url).pathname.slice(1)
  await database.query(`ALTER DATABASE ${name} SET statement_timeout = '1s'`)
  const [known] = await database.query("SELECT FROM pg_settings WHERE name = 'transaction_timeout'")
  if (known !== undefined) await database.query(`ALTER DATABASE ${name} SET transaction_timeout = '1s'`)
  t.match(await cli.run('up'), { code: 0, stdout: `Applied ${AFTER}\n` })
})

t.test('it is applied after those before it were committed, and every run prints a line each', async (t) => {
  const { database, checkout: cli } = await checkout(
    t,
    { [INDEX]: indexMigration, [AFTER]: noteMigration },
    { empty: true },
  )
  const dry = await cli.run('up', '--dry-run')
  t.equal(dry.code, 0, dry.stderr)
  t.match(
    dry.stdout,
    /^BEGIN;\n[\s\S]*CREATE TABLE inventory[\s\S]*\nCOMMIT;\n-- Up Migration \(no transaction\)\n[\s\S]*;\nBEGIN;\n[\s\S]*ADD COLUMN note[\s\S]*COMMIT;\n$/,
  )
  const names = [...(await knownMigrations()), INDEX, AFTER]
  const up = await cli.run('up')
  t.strictSame(up, {
    code: 0,
    signal: null,
    stdout: names.map((name) => `Applied ${name}\n`).join(''),
    stderr: `Running ${INDEX} outside a transaction; this can take long.\n`,
  })
  t.strictSame(await indexes(database), [{ name: 'inventory_status_idx', valid: 't' }])
  t.strictSame(await cli.states(), [0, {}])
  t.match(await cli.run('up'), { code: 0, stdout: 'No migration is pending.\n', stderr: '' })
  t.match(await cli.run('down', '2', '--yes'), {
    code: 0,
    stdout: `Rolled back ${AFTER}\nRolled back ${INDEX}\n`,
    stderr: /removes the column note of inventory\./,
  })
  t.strictSame(await indexes(database), [])
})

t.test('one that fails half-way leaves an invalid index, which it and "status" name', async (t) => {
  const unique = indexMigration.replace('CREATE INDEX', 'CREATE UNIQUE INDEX')
  const { database, checkout: cli } = await checkout(t, { [INDEX]: unique, [AFTER]: noteMigration })
  await database.query("INSERT INTO inventory VALUES (1, 1, 'sold'), (2, 1, 'sold')")
  const sentence =
    'The index inventory_status_idx on inventory is INVALID: no query uses it, and every write maintains it. '
  for (const attempt of ['first', 'second']) {
    const up = await cli.run('up')
    t.equal(up.code, 8, attempt)
    t.equal(up.stdout, '')
    t.equal(
      up.stderr,
      `Running ${INDEX} outside a transaction; this can take long.\n` +
        `inventory: The migration ${INDEX} failed: could not create unique index "inventory_status_idx" ` +
        '(Key (status)=(sold) is duplicated). It runs outside a transaction, so its earlier changes remain. ' +
        `${sentence}Run "inventory migrate up" again, which starts this migration from its beginning, once the cause is removed.\n`,
    )
    t.strictSame(await indexes(database), [{ name: 'inventory_status_idx', valid: 'f' }])
    t.strictSame(await cli.states(), [3, { [INDEX]: 'incomplete', [AFTER]: 'pending' }])
  }
  t.equal((await cli.run('status')).stderr, `${INDEX}: ${sentence}Run "inventory migrate up" again.\n`)

  await database.query('DELETE FROM inventory WHERE pet_id = 2')
  t.match(await cli.run('up'), { code: 0, stdout: `Applied ${INDEX}\nApplied ${AFTER}\n` })
  t.strictSame(await indexes(database), [{ name: 'inventory_status_idx', valid: 't' }])
  t.strictSame(await cli.states(), [0, {}])
})

t.test('a transaction that it waits for too long is named, in both directions', async (t) => {
  const { database, checkout: cli } = await checkout(t, { [INDEX]: indexMigration })
  const holder =
    /The lock is held by PID \d+ \(.*, AccessShareLock on inventory, a snapshot, for \d+ s: SET TRANSACTION ISOLATION/
  let release = await database.hold(SNAPSHOT)
  const up = await cli.run('up')
  t.equal(up.code, 8)
  t.match(up.stderr, /failed to get a lock in time\. It runs outside a transaction/)
  t.match(up.stderr, holder)
  t.match(
    up.stderr,
    /Run "inventory migrate up" again.* or terminate it: SELECT pg_terminate_backend\(PID\)\.\n$/,
  )
  await release()
  t.equal((await cli.run('up')).code, 0)

  release = await database.hold(SNAPSHOT)
  const down = await cli.run('down', '--yes')
  t.equal(down.code, 8)
  t.match(down.stderr, holder)
  t.match(down.stderr, /Run "inventory migrate down" again/)
  t.strictSame(await indexes(database), [{ name: 'inventory_status_idx', valid: 'f' }])
  t.strictSame(await cli.states(), [3, { [INDEX]: 'incomplete' }])
  t.match((await cli.run('status')).stderr, /Rebuild it: REINDEX INDEX CONCURRENTLY inventory_status_idx;\n$/)
  await release()
  t.equal((await cli.run('down', '--yes')).code, 0)
  t.strictSame(await indexes(database), [])
})

t.test('an owner that is no superuser is told of the sessions of other roles, too', async (t) => {
  const role = await testRole(t)
  const { database, checkout: cli } = await checkout(t, {}, { empty: true, role })
  await database.query(`GRANT CREATE ON SCHEMA public TO ${role.name}`)
  t.equal((await cli.run('up')).code, 0)
  await cli.write(INDEX, indexMigration)
  const release = await database.hold(SNAPSHOT)
  const up = await cli.run('up')
  t.equal(up.code, 8)
  t.match(
    up.stderr,
    /The lock is held by PID \d+ \(\w+, AccessShareLock on inventory, a snapshot: <insufficient privilege>\)/,
  )
  await release()
})

t.test('several at once wait for the one that builds, and none is a deadlock', async (t) => {
  const { database, checkout: cli } = await checkout(t, {
    [INDEX]: indexMigration.replaceAll("'1s'", "'50s'"),
  })
  const release = await database.hold(SNAPSHOT)
  const first = await cli.start('up')
  await untilItWaits(database)
  t.strictSame(await cli.states(), [3, { [INDEX]: 'running' }])
  const others = await Promise.all([cli.start('up'), cli.start('up')])
  await Promise.all(
    others.map((other) => other.output(/Waiting for other migrations of this database, as PID \d+/)),
  )
  await release()
  t.match(await first.ended, { code: 0, stdout: `Applied ${INDEX}\n` })
  for (const other of others) t.match(await other.ended, { code: 0, stdout: 'No migration is pending.\n' })
  t.strictSame(await indexes(database), [{ name: 'inventory_status_idx', valid: 't' }])
})

t.test('a connection that is lost meanwhile is no success', async (t) => {
  const { database, checkout: cli } = await checkout(t, {
    [INDEX]: indexMigration.replaceAll("'1s'", "'50s'"),
    [AFTER]: noteMigration,
  })
  const release = await database.hold(SNAPSHOT)
  const up = await cli.start('up')
  await untilItWaits(database)
  await database.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%INDEX CONCURRENTLY%' AND pid <> pg_backend_pid()",
  )
  await release()
  const { code, stdout, stderr } = await up.ended
  t.equal(code, 8, stderr)
  t.equal(stdout, '')
  t.match(
    stderr,
    new RegExp(`The migration ${INDEX} failed: the connection to PostgreSQL was lost\\. It runs outside`),
  )
  t.strictSame(await cli.states(), [3, { [INDEX]: 'incomplete', [AFTER]: 'pending' }])
  t.equal((await cli.run('up')).code, 0)
})

t.test('one in a transaction says where it failed, and what was committed before it', async (t) => {
  const wrong = noteMigration.replace('ALTER TABLE inventory ADD', 'ALTER TABLE inventories ADD')
  const { checkout: cli } = await checkout(t, { [INDEX]: indexMigration, [AFTER]: wrong })
  const first = await cli.run('up')
  t.equal(first.code, 8)
  t.equal(first.stdout, `Applied ${INDEX}\n`)
  t.match(
    first.stderr,
    `inventory: The migration ${AFTER} failed: relation "inventories" does not exist; it changed nothing. ` +
      `Applied and committed before it: ${INDEX}.\n`,
  )
  const second = await cli.run('up')
  t.equal(second.code, 1)
  t.match(second.stderr, /; nothing was changed\.\n$/)
  await cli.write(AFTER, noteMigration.replace('note text', 'note txt'))
  t.match(await cli.run('up'), {
    code: 1,
    stderr: `inventory: The migration ${AFTER} failed: type "txt" does not exist, in line 6 of migrations/${AFTER}.sql; nothing was changed.\n`,
  })
  for (const invalid of [
    noteMigration.replace('-- Up Migration', '-- Up Migration (without transaction)'),
    `${noteMigration}\n-- Down Migration\nDROP TABLE inventory;\n`,
  ]) {
    await cli.write(AFTER, invalid)
    t.match(await cli.run('up'), {
      code: 1,
      stderr: `inventory: migrations/${AFTER}.sql must have a line "-- Up Migration" and after it a line "-- Down Migration", each with " (no transaction)" at its end or without; nothing was changed.\n`,
    })
  }
})

t.test('a file counts as changed until it is restored, but not for its line endings', async (t) => {
  const { checkout: cli, database } = await checkout(t, {})
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

t.test('create writes one, which runs as it is', async (t) => {
  const { checkout: cli, database } = await checkout(t, {})
  const cwd = await temporaryFolder(t)
  const created = await (
    await startProgram(t, 'cli', { args: ['migrate', 'create', 'add-index', '--no-transaction'], cwd })
  ).ended
  t.equal(created.code, 0, created.stderr)
  const file = path.join(cwd, created.stdout.trim())
  const text = await readFile(file, 'utf8')
  t.match(text, /-- Up Migration \(no transaction\)\n[\s\S]*\n-- Down Migration \(no transaction\)\n/)
  await cli.write(INDEX, text)
  t.equal((await cli.run('up')).code, 0)
  t.equal((await cli.run('down', '--yes')).code, 0)
  t.strictSame(await indexes(database), [])
})
