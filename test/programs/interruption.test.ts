import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { startCommand, succeed } from '../support/command.ts'
import { addKey, type TestDatabase, testDatabase, testRole, waitForSessions } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import { copyPackage } from '../support/program.ts'
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

const ADDED = '29990101000000001_add-note'
const migration =
  '-- Up Migration\nALTER TABLE inventory ADD COLUMN note text;\n\n-- Down Migration\nSELECT;\n'

t.test('a connection that is lost, or Ctrl-C, during a migration changes nothing', async (t) => {
  const database = await testDatabase(t)
  // The command line as it ships, with a migration that this version does not have.
  const folder = await copyPackage(t)
  const up = () => startCommand(t, database.url, 'migrate up', { programs: path.join(folder, 'dist') })
  const file = path.join(folder, 'migrations', `${ADDED}.sql`)
  await writeFile(file, migration.replace('text;', 'text;\nSELECT pg_sleep(3600);'))
  const lost = { code: 1, stderr: /^inventory: PostgreSQL cannot serve this now: terminating connection / }
  for (const outcome of [lost, interrupted]) {
    const program = await up()
    await waitForSessions(database, ASLEEP)
    if (outcome === lost)
      await database.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND ${ASLEEP}`)
    else program.process.kill('SIGINT')
    t.match(await program.ended, outcome)
    await waitForSessions(database, ASLEEP, 0)
  }
  await writeFile(file, migration)
  t.match(await (await up()).ended, { code: 0, stdout: `Applied ${ADDED}\n` })
})
