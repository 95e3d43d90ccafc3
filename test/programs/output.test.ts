import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { addEntries, addKey, stockOf, testDatabase } from '../support/database.ts'
import { type Outcome, run, startProgram, temporaryFolder } from '../support/program.ts'

/** Runs a command whose standard output is a full device. */
function withFullOutput(t: Test, url: string, ...args: string[]): Promise<Outcome> {
  const words = ['-c', '"$@" >/dev/full', 'bash', process.execPath, 'dist/cli.js', ...args]
  return run(t, 'bash', words, { env: { DATABASE_URL: url } }).ended
}

/** Runs a command whose standard output nobody reads. */
async function withClosedOutput(t: Test, url: string, ...args: string[]): Promise<Outcome> {
  const program = await startProgram(t, 'cli', { args, env: { DATABASE_URL: url } })
  program.process.stdout?.destroy()
  return program.ended
}

t.test('no key is created or revoked if its output fails', async (t) => {
  const database = await testDatabase(t)
  await addKey(database, 'old')
  const before = await database.query('SELECT * FROM api_keys')
  for (const command of [
    ['keys', 'create', '--name', 'new'],
    ['keys', 'rotate', 'old'],
  ]) {
    t.match(await withFullOutput(t, database.url, ...command), {
      code: 1,
      stderr: /\ninventory: Standard output cannot be written: ENOSPC.*\n$/,
    })
    t.match(await withClosedOutput(t, database.url, ...command), { code: 141, stderr: /shown only once:\n$/ })
    t.strictSame(await database.query('SELECT * FROM api_keys'), before)
  }
})

t.test('a command that has done its work says so where its output cannot be written', async (t) => {
  const database = await testDatabase(t)
  const file = path.join(await temporaryFolder(t), 'stock.csv')
  await writeFile(file, 'petId,quantity\n1,1\n2,2\n')
  t.match(await withFullOutput(t, database.url, 'import', file), {
    code: 6,
    stderr: /cannot be written: ENOSPC.*\. The command succeeded: 2 added, 0 changed, 0 unchanged\n$/,
  })
  t.match(await withClosedOutput(t, database.url, 'import', file), {
    code: 141,
    stderr: /The command succeeded: 0 added, 0 changed, 2 unchanged\n$/,
  })
  t.equal(await stockOf(database), '1,1,available\n2,2,available')
  const empty = await testDatabase(t, { empty: true })
  t.match(await withFullOutput(t, empty.url, 'migrate', 'up'), {
    code: 6,
    stderr: /The command succeeded: up \d{17}_create-inventory, /,
  })
  t.equal(await stockOf(empty), '')
})

t.test('a command that only reads fails without a stack trace', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  const stderr = 'inventory: Standard output cannot be written: ENOSPC: no space left on device, write\n'
  for (const args of [['keys', 'list', '--json'], ['export']]) {
    t.match(await withFullOutput(t, database.url, ...args), { code: 1, stderr })
    t.match(await withClosedOutput(t, database.url, ...args), { code: 141, stderr: '' })
  }
})
