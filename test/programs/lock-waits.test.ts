import { PG_MIGRATE_LOCK_ID } from 'node-pg-migrate'
import pg from 'pg'
import t, { type Test } from 'tap'
import { startCommand } from '../support/command.ts'
import { addKey, testDatabase, testRole, waitForSessions } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'

const PROGRAM = 'psql\u001b[31m 14'

/** What another session has locked, the command that waits for it, what that says, and how it fails if it does not go on waiting. */
const waits: (readonly [held: string, command: string, lock: string, failure?: RegExp])[] = [
  [`SELECT pg_advisory_lock(${PG_MIGRATE_LOCK_ID})`, 'migrate up', `the advisory lock ${PG_MIGRATE_LOCK_ID}`],
  ['BEGIN; SELECT pg_advisory_xact_lock(7301482266)', 'import stock.csv', 'the advisory lock 7301482266'],
  ['BEGIN; SELECT FROM api_keys FOR UPDATE', 'keys revoke billing', 'a row of api_keys'],
  ['BEGIN; LOCK TABLE api_keys', 'keys list', 'a lock on api_keys'],
  [
    'BEGIN; UPDATE inventory SET quantity = 2',
    'history on',
    'a lock on inventory',
    /locked what the command needs: /,
  ],
  [
    'BEGIN; SELECT FROM inventory',
    'migrate down 9 --yes',
    'a lock on inventory',
    /The migration \S+ failed: canceling statement due to lock timeout; nothing was changed\.\n$/,
  ],
]

t.jobs = 3
for (const [held, command, lock, failure] of waits) {
  t.test(`${command} says that it waits for ${lock}, and who has it`, { buffered: true }, async (t) => {
    const database = await testDatabase(t, { entries: ['1,1,sold'] })
    await addKey(database, 'billing')
    const holder = await connect(t, database.url)
    await holder.query(held)
    const { rows } = await holder.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    const cwd = await temporaryFolder(t, { 'stock.csv': 'petId,quantity\n1,2\n' })
    const program = await startCommand(t, database.url, command, { cwd })
    // PostgreSQL replaces the control character itself.
    const session = `process ${rows[0]?.pid} \\(role postgres, psql[^ ]+ 14, (in a transaction|connected) since \\d[-0-9:.T]+Z\\)`
    await program.output(new RegExp(`^inventory: waiting for ${lock}, which ${session} has$`, 'm'))
    if (failure === undefined) await holder.end()
    const { code, stderr } = await program.ended
    t.equal(code, failure === undefined ? 0 : 1, stderr)
    if (failure !== undefined) t.match(stderr, failure)
    t.equal(stderr.split('waiting for').length, 2, 'once')
    t.notMatch(stderr, '\u001b')
    await waitForSessions(database, "application_name ~ 'cli$'", 0)
  })
}

t.test('a role without privileges is told of the session of another', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(`GRANT SELECT, UPDATE, INSERT ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  await addKey(database, 'billing')
  const holder = await connect(t, database.url)
  await holder.query('BEGIN; SELECT FROM api_keys FOR UPDATE')
  const program = await startCommand(t, role.toUrl(database.url), 'keys revoke billing')
  await program.output(/waiting for a row of api_keys, which process \d+ \(role postgres, psql\S+ 14\) has\n/)
  await holder.end()
  t.match(await program.ended, { code: 0 })
})

async function connect(t: Test, connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString, application_name: PROGRAM })
  await client.connect()
  t.teardown(() => client.end())
  return client
}
