import t from 'tap'
import { succeed } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { startProgram } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

const interrupted = { code: 130, stdout: '', stderr: /(^|\n)inventory: interrupted; nothing was changed\n$/ }

t.test('Ctrl-C ends the statement on the server, even if the role may open no other session', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(
    `ALTER TABLE inventory RENAME TO stock;
     CREATE VIEW inventory AS SELECT stock.* FROM pg_sleep(3600) LEFT JOIN stock ON true;
     GRANT SELECT ON inventory TO ${role.name};
     ALTER ROLE ${role.name} CONNECTION LIMIT 1`,
  )
  const statement = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
  const isRunning = async (): Promise<boolean> => (await database.query(`SELECT ${statement}`)).length > 0
  const env = { DATABASE_URL: role.urlOf(database.url) }
  const program = await startProgram(t, 'cli', { args: ['export'], env })
  await eventually('the statement', isRunning)
  program.process.kill('SIGINT')
  await eventually('its end', async () => !(await isRunning()))
  t.match(await program.ended, interrupted)
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
