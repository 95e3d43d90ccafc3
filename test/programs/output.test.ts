import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { addEntries, addKey, stockOf, testDatabase } from '../support/database.ts'
import { type Outcome, startProgram, temporaryFolder } from '../support/program.ts'

const binary = path.resolve('dist/cli.js')

interface Failed {
  readonly code: unknown
  readonly stderr: string
}

/** Runs a command whose standard output is a full device. */
async function withFullOutput(t: Test, url: string, ...args: string[]): Promise<Failed> {
  return promisify(execFile)(
    'bash',
    ['--norc', '-c', '"$@" >/dev/full', 'bash', process.execPath, binary, ...args],
    {
      cwd: await temporaryFolder(t),
      env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: url },
    },
  ).then(
    ({ stderr }) => ({ code: 0, stderr }),
    (error: Failed) => error,
  )
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
    const full = await withFullOutput(t, database.url, ...command)
    t.equal(full.code, 1)
    t.match(
      full.stderr,
      /inventory: Standard output cannot be written: ENOSPC.* No key was created, and none was revoked\.\n$/,
    )
    t.notMatch(full.stderr, /\n {4}at /)
    const closed = await withClosedOutput(t, database.url, ...command)
    t.equal(closed.code, 141)
    t.match(closed.stderr, /No key was created, and none was revoked\.\n$/)
    t.strictSame(await database.query('SELECT * FROM api_keys'), before)
  }
})

t.test('a command that has done its work says so where its output cannot be written', async (t) => {
  const database = await testDatabase(t)
  const cwd = await temporaryFolder(t)
  const file = path.join(cwd, 'stock.csv')
  await writeFile(file, 'petId,quantity\n1,1\n2,2\n')
  const full = await withFullOutput(t, database.url, 'import', file)
  t.equal(full.code, 6)
  t.match(
    full.stderr,
    /cannot be written: ENOSPC.*\. The command succeeded: 2 added, 0 changed, 0 unchanged\n$/,
  )
  const closed = await withClosedOutput(t, database.url, 'import', file)
  t.equal(closed.code, 141)
  t.match(closed.stderr, /The command succeeded: 0 added, 0 changed, 2 unchanged\n$/)
  t.equal(await stockOf(database), '1,1,available\n2,2,available')

  const empty = await testDatabase(t, { empty: true })
  const migrated = await withFullOutput(t, empty.url, 'migrate', 'up')
  t.equal(migrated.code, 6)
  t.match(migrated.stderr, /The command succeeded: up \d{17}_create-inventory, /)
  t.equal(await stockOf(empty), '')
})

t.test('a command that only reads fails without a stack trace', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  for (const args of [['keys', 'list', '--json'], ['export']]) {
    const { code, stderr } = await withFullOutput(t, database.url, ...args)
    t.equal(code, 1, args.join(' '))
    t.match(
      stderr,
      /^inventory: Standard output cannot be written: ENOSPC: no space left on device, write\n$/,
    )
    t.match(await withClosedOutput(t, database.url, ...args), { code: 141, stderr: '' })
  }
})
