import t, { type Test } from 'tap'
import { knownMigrations } from '../../src/database/migrations.ts'
import { runCommand } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import type { Outcome } from '../support/program.ts'

/** A migration of a newer version. */
const AFTER = '29990101000000001_add-price'

async function run(t: Test, args: string[], env: Record<string, string>): Promise<Outcome> {
  return runCommand(t, ['migrate', ...args], { env })
}

t.test('status shows what is applied, pending and unknown; up refuses one out of order', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const env = { DATABASE_URL: database.url }
  const states = async (): Promise<[number | null, Record<string, string>]> => {
    const { code, stdout } = await run(t, ['status', '--json'], env)
    const records: { name: string; state: string }[] = JSON.parse(stdout)
    return [code, Object.fromEntries(records.map(({ name, state }) => [name, state]))]
  }
  const known = await knownMigrations()
  const all = (state: string): Record<string, string> =>
    Object.fromEntries(known.map((name) => [name, state]))
  t.strictSame(await states(), [3, all('pending')])
  t.strictSame(await database.query("SELECT to_regclass('pgmigrations') AS found"), [{ found: null }])
  t.equal((await run(t, ['up'], env)).code, 0)
  t.strictSame(await states(), [0, all('applied')])
  t.match(
    (await run(t, ['status'], env)).stdout,
    /^MIGRATION +STATE +APPLIED\n\d{17}_create-inventory +applied +\d{4}-/,
  )

  await database.query(`INSERT INTO pgmigrations (name, run_on) VALUES ('${AFTER}', now())`)
  t.strictSame(await states(), [0, { ...all('applied'), [AFTER]: 'unknown' }], 'a newer version is no error')
  t.match(await run(t, ['down', '--yes'], env), {
    code: 1,
    stderr: `This version does not know the migration ${AFTER}. Roll it back with the version that introduced it.`,
  })
  const [first = '', second = ''] = known
  await database.query('DELETE FROM pgmigrations WHERE name = $1', [first])
  t.match(await states(), [3, { [first]: 'pending', [second]: 'applied' }])
  t.match(await run(t, ['up'], env), {
    code: 1,
    stderr: `inventory: Not run migration ${first} is preceding already run migration ${second}; nothing was changed.\n`,
  })
})

t.test('the newest migration is the last by name, whatever the time zone was', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const env = { DATABASE_URL: database.url }
  const names = async (): Promise<unknown[]> =>
    (await database.query('SELECT name FROM pgmigrations ORDER BY name')).map(({ name }) => name)
  const known = await knownMigrations()

  await database.query(
    `ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET TimeZone = 'Pacific/Kiritimati'`,
  )
  t.equal((await run(t, ['up'], env)).code, 0)
  const { stdout } = await run(t, ['status', '--json'], env)
  const [record]: { appliedAt: string }[] = JSON.parse(stdout)
  t.ok(Math.abs(Date.parse(record?.appliedAt ?? '') - Date.now()) < 600_000, 'their times are in UTC')

  // As after a change of the time zone, at the end of daylight saving time, and in a table that was copied in another order.
  for (const disorder of [
    "run_on = run_on + interval '14 hours' WHERE name LIKE '%create-inventory'",
    "run_on = run_on - interval '1 hour' WHERE name LIKE '%add-history'",
    'run_on = now(), id = 100 - id',
  ]) {
    await database.query(`UPDATE pgmigrations SET ${disorder}`)
    t.match(await run(t, ['down', '--yes'], env), { code: 0, stdout: `Rolled back ${known.at(-1)}\n` })
    t.strictSame(await names(), known.slice(0, -1))
    t.match(await run(t, ['up'], env), { code: 0, stdout: `Applied ${known.at(-1)}\n` })
    t.strictSame(await names(), known)
  }
})
