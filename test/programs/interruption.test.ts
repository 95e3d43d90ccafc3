import { PG_MIGRATE_LOCK_ID } from 'node-pg-migrate'
import pg from 'pg'
import t, { type Test } from 'tap'
import { inventory, startCommand, succeed } from '../support/command.ts'
import { addKey, type TestDatabase, testDatabase, testRole, waitForSessions } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import { temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { trigger } from '../support/triggers.ts'

const interrupted = { code: 130, stdout: '', stderr: /(^|\n)inventory: interrupted; nothing was changed\n$/ }

const ASLEEP = "wait_event = 'PgSleep'"

/** Sends SIGINT to a command once a statement of it calls `pg_sleep`. */
async function interrupt(t: Test, database: TestDatabase, command: string, url = database.url) {
  const program = await startCommand(t, url, command)
  await waitForSessions(database, ASLEEP)
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
  const program = await interrupt(t, database, 'export', role.toUrl(database.url))
  await waitForSessions(database, ASLEEP, 0)
  t.match(await program.ended, interrupted)
})

t.test('a signal during COMMIT ends the command, which says that the outcome is unknown', async (t) => {
  const database = await testDatabase(t)
  await addKey(database, 'old')
  const atCommit = 'CONSTRAINT TRIGGER act AFTER UPDATE ON api_keys INITIALLY DEFERRED FOR EACH ROW'
  await database.query(trigger('PERFORM pg_sleep(60)', atCommit))
  const { ended } = await interrupt(t, database, 'keys revoke old')
  const stderr = /it is unknown whether anything was changed\. To find out, run /
  t.match(await ended, { code: 4, stdout: '', stderr })
})

t.test('Ctrl-C ends a command whose server does not respond any more, whatever it waits for', async (t) => {
  const database = await testDatabase(t)
  for (const [text, command] of [
    ['petstore-inventory cli', 'export'],
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
    const program = await startCommand(t, relay.url, command, { input: 'petId,quantity\n1,1\n2,2\n' })
    await until(text, () => isSilent)
    program.process.kill('SIGINT')
    t.match(await program.ended, interrupted, text)
  }
  t.strictSame(await database.query('SELECT FROM inventory'), [])
  t.strictSame(await database.query('SELECT FROM api_keys'), [])
})

t.test('Ctrl-C while a command waits after its commit says that the change remains', async (t) => {
  const { url } = await testDatabase(t)
  const program = await startCommand(t, url, 'history on')
  await program.output(/recording/)
  program.process.kill('SIGINT')
  const stderr = /\ninventory: interrupted after the commit; the change remains\n$/
  t.match(await program.ended, { code: 130, stdout: '', stderr })
  t.match(await succeed(t, url, 'history'), /^TIME /)
})

t.test('Ctrl-C during a migration changes nothing', async (t) => {
  const database = await testDatabase(t, { empty: true })
  await database.query(`CREATE FUNCTION act() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); END';
    CREATE EVENT TRIGGER act ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION act()`)
  t.match(await (await interrupt(t, database, 'migrate up')).ended, interrupted)
  await waitForSessions(database, ASLEEP, 0)
  t.strictSame(await database.query("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace"), [])
})

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

/** Commands, and a query that finds what each has made. */
const commands = [
  ['migrate up', "SELECT WHERE to_regclass('inventory') IS NOT NULL"],
  ['import - --rows 1', 'SELECT FROM inventory WHERE quantity = 5'],
  ['keys create --name new', "SELECT FROM api_keys WHERE name = 'new'"],
  ['keys rotate old', 'SELECT FROM api_keys WHERE revoked_at IS NOT NULL'],
] as const

for (const moment of ['before', 'after'] as const) {
  t.test(`a command whose connection is lost ${moment} COMMIT says how to find out`, async (t) => {
    const database = await testDatabase(t, { empty: true })
    for (const [command, made] of commands) {
      const url = await losingCommit(t, database.url, moment)
      const { code, stdout, stderr } = await inventory(t, url, command, { input: 'petId,quantity\n1,5\n' })
      t.equal(code, 4, stderr)
      t.match(stdout, command.startsWith('keys') ? /^inv_\w+\n$/ : /^$/, command)
      t.match(stderr, /^inventory: It is unknown whether .* was committed: .*\. To find out, run /m, command)
      t.notMatch(stderr, /nothing was changed|\n {4}at /, command)
      t.equal((await database.query(made)).length, moment === 'after' ? 1 : 0, command)
      if (command !== 'migrate up') continue
      await succeed(t, database.url, 'migrate up')
      await addKey(database, 'old')
    }
  })
}

t.test('a command says what lock it waits for and who has it, if only that it is another role', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,1,sold'] })
  await database.query(`GRANT SELECT, UPDATE, INSERT ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  await addKey(database, 'billing')
  const holder = new pg.Client({ connectionString: database.url, application_name: 'psql\u001b[31m 14' })
  await holder.connect()
  t.teardown(() => holder.end())
  await holder.query(`SELECT pg_advisory_lock(${PG_MIGRATE_LOCK_ID}); BEGIN;
    SELECT pg_advisory_xact_lock(7301482266); LOCK TABLE inventory; SELECT FROM api_keys FOR UPDATE`)
  const { rows } = await holder.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  // PostgreSQL replaces the control character itself.
  const session = `which process ${rows[0]?.pid} \\(role postgres, psql[^ ]+ 14`
  const times = ', in a transaction since \\d[-0-9:.T]+Z'
  const cwd = await temporaryFolder(t, { 'stock.csv': 'petId,quantity\n1,2\n' })
  const wait = async (command: string, lock: string, url = database.url, details = times) => {
    const program = await startCommand(t, url, command, { cwd })
    await program.output(new RegExp(`^inventory: waiting for ${lock}, ${session}${details}\\) has$`, 'm'))
    return program
  }
  const programs = await Promise.all([
    wait('migrate up', `the advisory lock ${PG_MIGRATE_LOCK_ID}`),
    wait('import stock.csv', 'the advisory lock 7301482266'),
    wait('export', 'a lock on inventory'),
    wait('keys revoke billing', 'a row of api_keys', role.toUrl(database.url), ''),
  ])
  const locked = /^inventory: waiting for a lock on inventory, .*\n.*locked what the command needs: /
  t.match(await inventory(t, database.url, 'history on'), { code: 1, stderr: locked })
  await holder.end()
  for (const { ended } of programs) {
    const { code, stderr } = await ended
    t.equal(code, 0, stderr)
    t.equal(stderr.split('waiting for').length, 2, 'once')
    t.notMatch(stderr, '\u001b')
  }
  await waitForSessions(database, "application_name ~ 'cli$'", 0)
  await database.hold('SELECT FROM inventory')
  const failed = /The migration \S+ failed: canceling statement due to lock timeout; nothing was changed\.\n$/
  t.match(await inventory(t, database.url, 'migrate down 9 --yes'), { code: 1, stderr: failed })
})
