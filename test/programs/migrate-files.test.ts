import { cp, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Program, startProgram, temporaryFolder } from '../support/program.ts'

const AFTER = '29990101000000001_add-note'

const noteMigration = `-- A note.

-- Up Migration
ALTER TABLE inventory ADD COLUMN note text;

-- Down Migration
ALTER TABLE inventory DROP COLUMN note;
`

t.test('a connection that is lost, or Ctrl-C, during a migration changes nothing', async (t) => {
  const database = await testDatabase(t)
  // The command line as it ships, with a migration that this version does not have.
  const folder = await temporaryFolder(t)
  for (const name of ['dist', 'migrations', 'package.json'])
    await cp(name, path.join(folder, name), { recursive: true })
  await symlink(path.resolve('node_modules'), path.join(folder, 'node_modules'))
  const options = { env: { DATABASE_URL: database.url }, programs: path.join(folder, 'dist') }
  const start = (command: string): Promise<Program> =>
    startProgram(t, 'cli', { args: ['migrate', command], ...options })
  const file = path.join(folder, 'migrations', `${AFTER}.sql`)
  await writeFile(file, noteMigration.replace('text;', 'text;\nSELECT pg_sleep(3600);'))
  const running = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
  const isRunning = async (): Promise<boolean> => (await database.query(`SELECT ${running}`)).length > 0
  for (const [signal, outcome] of [
    [undefined, { code: 1, stderr: /^inventory: PostgreSQL cannot serve this now: terminating connection / }],
    ['SIGINT', { code: 130, stdout: '', stderr: 'inventory: interrupted; nothing was changed\n' }],
  ] as const) {
    const up = await start('up')
    await eventually('the migration to run', isRunning, 120_000)
    if (signal === undefined) await database.query(`SELECT pg_terminate_backend(pid) ${running}`)
    else up.process.kill(signal)
    t.match(await up.ended, outcome)
    await eventually('PostgreSQL to end it', async () => !(await isRunning()))
    t.match(await (await start('status')).ended, { code: 3, stdout: new RegExp(`${AFTER} +pending`) })
  }
  await writeFile(file, noteMigration)
  t.match(await (await start('up')).ended, { code: 0, stdout: `Applied ${AFTER}\n` })
})
