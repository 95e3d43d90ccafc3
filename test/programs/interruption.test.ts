import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { succeed } from '../support/command.ts'
import { addKey, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { copyPackage, type Program, startProgram } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

const interrupted = { code: 130, stdout: '', stderr: /(^|\n)inventory: interrupted; nothing was changed\n$/ }

const ASLEEP = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
const isAsleep = async ({ query }: TestDatabase): Promise<boolean> =>
  (await query(`SELECT ${ASLEEP}`)).length > 0

/** Sends SIGINT to a command once a statement of it calls `pg_sleep`. */
async function interrupt(t: Test, database: TestDatabase, command: string, url = database.url) {
  const program = await startProgram(t, 'cli', { args: command.split(' '), env: { DATABASE_URL: url } })
  await eventually('the statement', () => isAsleep(database))
  program.process.kill('SIGINT')
  return program
}

t.test('Ctrl-C ends the statement on the server, even if the role may open no other session', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(
    `ALTER TABLE inventory RENAME TO stock;
     CREATE VIEW inventory AS SELECT stock.* FROM pg_sleep(3600) LEFT JOIN stock ON true;
     GRANT SELECT ON inventory TO ${role.name};
     ALTER ROLE ${role.name} CONNECTION LIMIT 1`,
  )
  const program = await interrupt(t, database, 'export', role.urlOf(database.url))
  await eventually('its end', async () => !(await isAsleep(database)))
  t.match(await program.ended, interrupted)
})

t.test('a signal during COMMIT ends the command, which says that the outcome is unknown', async (t) => {
  const database = await testDatabase(t)
  await addKey(database, 'old')
  await database.query(
    `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
     CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON api_keys DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION wait()`,
  )
  const { ended } = await interrupt(t, database, 'keys revoke old')
  const stderr = /it is unknown whether anything was changed\. To find out, run /
  t.match(await ended, { code: 4, stdout: '', stderr })
})

t.test('Ctrl-C ends a command whose server does not respond any more, whatever it waits for', async (t) => {
  const database = await testDatabase(t)
  for (const [text, command] of [
    ['petstore-inventory cli', 'export'],
    ['COPY (SELECT', 'export'],
    ['COPY staged', 'import - --rows 2'],
    ['INSERT INTO api_keys', 'keys create --name ops'],
  ] as const) {
    let isSilent = false
    const relay = await startRelay(t, database.url, {
      towardsDatabase(bytes) {
        if (!bytes.includes(text)) return bytes
        isSilent = true
        relay.stall()
        return Buffer.alloc(0)
      },
    })
    const env = { DATABASE_URL: relay.url }
    const input = 'petId,quantity\n1,1\n2,2\n'
    const program = await startProgram(t, 'cli', { args: command.split(' '), env, input })
    await until(text, () => isSilent)
    program.process.kill('SIGINT')
    t.match(await program.ended, interrupted, text)
  }
  t.strictSame(await database.query('SELECT FROM inventory'), [])
  t.strictSame(await database.query('SELECT FROM api_keys'), [])
})

t.test('Ctrl-C while a command waits after its commit says that the change remains', async (t) => {
  const { url } = await testDatabase(t)
  const program = await startProgram(t, 'cli', { args: ['history', 'on'], env: { DATABASE_URL: url } })
  await program.output(/recording/)
  program.process.kill('SIGINT')
  const stderr = /\ninventory: interrupted after the commit; the change remains\n$/
  t.match(await program.ended, { code: 130, stdout: '', stderr })
  t.match(await succeed(t, url, 'history', 'status'), /^Recording +on$/m)
})

const ADDED = '29990101000000001_add-note'
const migration =
  '-- Up Migration\nALTER TABLE inventory ADD COLUMN note text;\n\n-- Down Migration\nSELECT;\n'

t.test('a connection that is lost, or Ctrl-C, during a migration changes nothing', async (t) => {
  const database = await testDatabase(t)
  // The command line as it ships, with a migration that this version does not have.
  const folder = await copyPackage(t)
  const options = { env: { DATABASE_URL: database.url }, programs: path.join(folder, 'dist') }
  const up = (): Promise<Program> => startProgram(t, 'cli', { args: ['migrate', 'up'], ...options })
  const file = path.join(folder, 'migrations', `${ADDED}.sql`)
  await writeFile(file, migration.replace('text;', 'text;\nSELECT pg_sleep(3600);'))
  const lost = { code: 1, stderr: /^inventory: PostgreSQL cannot serve this now: terminating connection / }
  for (const outcome of [lost, interrupted]) {
    const program = await up()
    await eventually('the migration to run', () => isAsleep(database))
    if (outcome === lost) await database.query(`SELECT pg_terminate_backend(pid) ${ASLEEP}`)
    else program.process.kill('SIGINT')
    t.match(await program.ended, outcome)
    await eventually('PostgreSQL to end it', async () => !(await isAsleep(database)))
  }
  await writeFile(file, migration)
  t.match(await (await up()).ended, { code: 0, stdout: `Applied ${ADDED}\n` })
})
