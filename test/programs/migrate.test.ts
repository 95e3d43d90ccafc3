import { cp, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { knownMigrations } from '../../src/database/migrations.ts'
import { inventory } from '../support/command.ts'
import { type TestDatabase, testDatabase, testRole } from '../support/database.ts'
import { run as runProgram, temporaryFolder } from '../support/program.ts'

const run = (t: Test, url: string, command: string) => inventory(t, url, `migrate ${command}`)

/** Everything that migrations make, as text: columns, constraints and indexes. */
const readSchema = ({ query }: TestDatabase) =>
  query(
    `SELECT table_name, column_name, data_type, is_nullable, NULL AS rule FROM information_schema.columns
     WHERE table_schema = 'public' AND table_name <> 'pgmigrations'
     UNION ALL
     SELECT conrelid::regclass::text, conname, contype::text, NULL, pg_get_constraintdef(oid) FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace AND conrelid <> coalesce(to_regclass('pgmigrations')::oid, 0)
     ORDER BY 1, 2, 3`,
  )

t.test('up, down and up again leave the same schema as up', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const empty = await readSchema(database)
  t.equal((await run(t, database.url, 'up')).code, 0)
  const migrated = await readSchema(database)
  t.notSame(migrated, empty)
  t.match(await run(t, database.url, 'up'), { code: 0, stdout: 'No migration is pending.\n', stderr: '' })
  t.strictSame(await readSchema(database), migrated)
  const down = `down ${knownMigrations.length}`
  const plan = `This rolls back ${knownMigrations.toReversed().join(', ')}, and deletes the data that they added`
  const stderr = `inventory: ${plan}; nothing was changed. To confirm, add --yes.\n`
  t.match(await run(t, database.url, down), { code: 5, stderr })
  t.strictSame(await readSchema(database), migrated)
  t.match(await run(t, database.url, `${down} --yes`), { code: 0, stderr: '' })
  t.strictSame(await readSchema(database), empty)
  t.equal((await run(t, database.url, 'up')).code, 0)
  t.strictSame(await readSchema(database), migrated)
})

t.test('a read-only server, and a role that may not create tables, are named in one message', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  const denied =
    /^inventory: .*permission denied for schema public.*; nothing was changed\. Run this as the owner /
  t.match(await run(t, role.toUrl(database.url), 'up'), { code: 1, stdout: '', stderr: denied })
  await database.query(`ALTER DATABASE ${database.name} SET default_transaction_read_only = on`)
  const readOnly = /^inventory: .*cannot execute CREATE TABLE in a read-only transaction.*\n$/
  t.match(await run(t, database.url, 'up'), { code: 1, stderr: readOnly })
})

t.test('the table refuses what the interface has no words for', async (t) => {
  const database = await testDatabase(t)
  for (const values of ["-1, 'sold'", "1, 'eaten'", "NULL, 'sold'", '1, NULL', "2147483648, 'sold'"])
    await t.rejects(database.query(`INSERT INTO inventory VALUES (1, ${values})`), values)
})

t.test('status shows the states of the migrations, and up refuses one out of order', async (t) => {
  const database = await testDatabase(t, { empty: true })
  await database.query(`ALTER DATABASE ${database.name} SET TimeZone = 'Pacific/Kiritimati'`)
  const states = async (): Promise<[number | null, Record<string, string>]> => {
    const { code, stdout } = await run(t, database.url, 'status --json')
    const records: { name: string; state: string }[] = JSON.parse(stdout)
    return [code, Object.fromEntries(records.map(({ name, state }) => [name, state]))]
  }
  const all = (state: string) => Object.fromEntries(knownMigrations.map((name) => [name, state]))
  t.strictSame(await states(), [3, all('pending')])
  t.equal((await run(t, database.url, 'up')).code, 0)
  t.strictSame(await states(), [0, all('applied')])
  const { stdout } = await run(t, database.url, 'status')
  const [, time = ''] =
    /^MIGRATION +STATE +APPLIED\n\d{17}_create-inventory +applied +(\S+Z)\n/.exec(stdout) ?? []
  t.ok(Math.abs(Date.parse(time) - Date.now()) < 600_000, 'in UTC')

  const newer = '29990101000000001_add-price'
  await database.query(`INSERT INTO pgmigrations (name, run_on) VALUES ('${newer}', now())`)
  t.strictSame(await states(), [0, { ...all('applied'), [newer]: 'unknown' }], 'no error')
  const gone = `inventory: Definitions of migrations ${newer} have been deleted; nothing was changed.\n`
  t.match(await run(t, database.url, 'down --yes'), { code: 1, stderr: gone })
  const [first = '', second = ''] = knownMigrations
  await database.query('DELETE FROM pgmigrations WHERE name = $1', [first])
  t.match(await states(), [3, { [first]: 'pending', [second]: 'applied' }])
  const order = `inventory: Not run migration ${first} is preceding already run migration ${second}; nothing was changed.\n`
  t.match(await run(t, database.url, 'up'), { code: 1, stderr: order })
})

t.test('migrations of the operator that are renamed are older than those of the next version', async (t) => {
  const database = await testDatabase(t)
  const [renamed, next] = ['29970101000000000_own', '29980101000000000_next']
  // The command line as it ships, with migrations that this version does not have.
  const folder = await temporaryFolder(t)
  for (const [name, copy = name] of [['.test-build/src', 'dist'], ['migrations'], ['package.json']] as const)
    await cp(name, path.join(folder, copy), { recursive: true })
  await symlink(path.resolve('node_modules'), path.join(folder, 'node_modules'))
  for (const name of [renamed, next])
    await writeFile(path.join(folder, 'migrations', `${name}.sql`), '-- Up Migration\nSELECT;\n')
  await database.query(`INSERT INTO pgmigrations (name, run_on) VALUES ('${renamed}', now())`)
  const args = [path.join(folder, 'dist', 'cli.js'), 'migrate', 'up']
  const { ended } = runProgram(t, process.execPath, args, { env: { DATABASE_URL: database.url } })
  t.match(await ended, { code: 0, stdout: `Applied ${next}\n`, stderr: '' })
})

t.test('the table of another program that uses node-pg-migrate is left alone', async (t) => {
  const database = await testDatabase(t, { empty: true })
  await database.query(
    `CREATE TABLE pgmigrations (id serial PRIMARY KEY, name varchar(255) NOT NULL, run_on timestamp NOT NULL);
     INSERT INTO pgmigrations (name, run_on) VALUES ('20991231000000000_create-users', '2026-01-02'), ('1700000000000_init', now())`,
  )
  const before = await database.query('TABLE pgmigrations')
  for (const command of ['up', 'down --yes']) {
    const stderr =
      /^inventory: The table pgmigrations belongs to another program: it lists the migration 1700000000000_init; nothing was changed\. Give the inventory a database of its own, /
    t.match(await run(t, database.url, command), { code: 1, stdout: '', stderr }, command)
  }
  t.strictSame(await database.query('TABLE pgmigrations'), before)
  t.strictSame(await database.query("SELECT to_regclass('inventory') AS found"), [{ found: null }])

  // What the message advises.
  await database.query(`CREATE SCHEMA shop; ALTER DATABASE ${database.name} SET search_path = shop`)
  t.equal((await run(t, database.url, 'up')).code, 0)
  t.strictSame(await database.query('TABLE public.pgmigrations'), before)
})

t.test('an upgrade of a version before 3.0.0 leads over 4.0.0', async (t) => {
  const database = await testDatabase(t)
  await run(t, database.url, 'down --yes')
  t.match(await run(t, database.url, 'up'), { code: 0 }, 'a schema that was only rolled back is migrated')
  const sequence = "pg_get_serial_sequence('pgmigrations', 'id')"
  const newer = knownMigrations.filter((name) => name > '20261126').length
  const stderr =
    /^inventory: A version before 3\.0\.0 made .* upgrade to 4\.0\.0 first, .*; nothing was changed\.\n$/
  for (const [count, old] of [
    [newer, "UPDATE pgmigrations SET checksum = 'that of 2.0.0'"],
    [newer + 2, `SELECT setval(${sequence}, 2)`],
  ] as const) {
    await run(t, database.url, `down ${count} --yes`)
    await database.query(old)
    t.match(await run(t, database.url, 'up'), { code: 1, stdout: '', stderr })
  }
})
