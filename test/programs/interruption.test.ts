import t, { type Test } from 'tap'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startProgram } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

const interrupted = { code: 130, stdout: '', stderr: /(^|\n)inventory: interrupted; nothing was changed\n$/ }

/** The statements that commands are running in the database, however their connections have ended. */
async function running(database: TestDatabase): Promise<unknown[]> {
  return database.query(
    "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND wait_event = 'PgSleep'",
  )
}

/** Makes every statement that reads the inventory take longer than any test. */
async function slowDown(database: TestDatabase): Promise<void> {
  await database.query('ALTER TABLE inventory RENAME TO stock')
  await database.query('CREATE VIEW inventory AS SELECT stock.* FROM pg_sleep(3600) LEFT JOIN stock ON true')
}

t.test('Ctrl-C ends the statement on the server, even if the role may open no other session', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await slowDown(database)
  await database.query(`GRANT SELECT ON inventory TO ${role.name}`)
  await database.query(`ALTER ROLE ${role.name} CONNECTION LIMIT 1`)
  const env = { DATABASE_URL: role.urlOf(database.url) }
  const program = await startProgram(t, 'cli', { args: ['export'], env })
  await eventually('the statement', async () => (await running(database)).length > 0)
  program.process.kill('SIGINT')
  await eventually('its end', async () => (await running(database)).length === 0)
  t.match(await program.ended, interrupted)
})

/** A database that receives nothing any more once a client has sent it the text, on whichever connection. */
async function silentAfter(t: Test, database: TestDatabase, text: string) {
  let fallSilent = (): void => {}
  const isSilent = new Promise<void>((resolve) => {
    fallSilent = resolve
  })
  const relay = await startRelay(t, database.url, {
    towardsDatabase(bytes) {
      if (!bytes.includes(text)) return bytes
      relay.stall()
      fallSilent()
      return Buffer.alloc(0)
    },
  })
  return { url: relay.url, isSilent }
}

t.test('Ctrl-C ends a command whose server does not respond any more, whatever it waits for', async (t) => {
  const database = await testDatabase(t)
  for (const [text, args] of [
    ['petstore-inventory cli', ['export']],
    ['transaction_timeout', ['export']],
    ['COPY (SELECT', ['export']],
    ['COPY staged', ['import', '-', '--rows', '2']],
    ['INSERT INTO api_keys', ['keys', 'create', '--name', 'ops']],
  ] as const) {
    const { url, isSilent } = await silentAfter(t, database, text)
    const program = await startProgram(t, 'cli', {
      args: [...args],
      env: { DATABASE_URL: url },
      input: 'petId,quantity\n1,1\n2,2\n',
    })
    await Promise.race([isSilent, program.ended])
    program.process.kill('SIGINT')
    t.match(await program.ended, interrupted, text)
  }
  t.strictSame(await database.query('SELECT FROM inventory'), [])
  t.strictSame(await database.query('SELECT FROM api_keys'), [])
})
