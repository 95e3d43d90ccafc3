import t, { type Test } from 'tap'
import { runBash, startCommand } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'

/** Runs a command whose standard output is a full device, or is closed before it is read. */
async function withoutOutput(t: Test, output: 'full' | 'closed', url: string, command: string) {
  const input = 'petId,quantity\n2,2\n'
  if (output === 'full')
    return runBash(t, `inventory ${command} >/dev/full`, { env: { DATABASE_URL: url }, input })
  const program = await startCommand(t, url, command, { input })
  program.process.stdout?.destroy()
  return program.ended
}

const full = { code: 1, stderr: /^inventory: Standard output cannot be written: ENOSPC.* not created\.\n$/m }

t.test('a command whose output fails exits with 1 or 141, and has created no key', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  await addKey(database, 'old')
  const before = await database.query('SELECT * FROM api_keys')
  for (const command of ['keys create --name new', 'keys rotate old', 'export'])
    t.match(await withoutOutput(t, 'full', database.url, command), full, command)
  for (const command of ['keys create --name new', 'keys list --json', 'export']) {
    const closed = await withoutOutput(t, 'closed', database.url, command)
    t.equal(closed.code, 141, command)
    t.notMatch(closed.stderr, /inventory:|\n {4}at /, command)
  }
  t.strictSame(await database.query('SELECT * FROM api_keys'), before)
  for (const output of ['full', 'closed'] as const) {
    const { code, stderr } = await withoutOutput(t, output, database.url, 'import - --rows 1')
    t.equal(code, output === 'full' ? 1 : 141, stderr)
    t.equal((await database.query('DELETE FROM inventory WHERE pet_id = 2 RETURNING 1')).length, 1, output)
  }
})
