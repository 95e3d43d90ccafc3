import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../support/command.ts'
import { addEntries, type TestDatabase, testDatabase, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, startProgram, temporaryFolder } from '../support/program.ts'
import { testRole } from '../support/roles.ts'

async function run(t: Test, url: string, args: string[], cwd?: string): Promise<Outcome> {
  return runCommand(t, args, { env: { DATABASE_URL: url }, ...(cwd === undefined ? {} : { cwd }) })
}

const csv =
  'petId,quantity,status\n-9223372036854775808,0,available\n1,2147483647,pending\n9007199254740993,5,sold\n9223372036854775807,1,available\n'
async function filled(t: Test): Promise<TestDatabase> {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['9223372036854775807', 1, 'available'],
    ['1', 2_147_483_647, 'pending'],
    ['9007199254740993', 5, 'sold'],
    ['-9223372036854775808', 0, 'available'],
  ])
  return database
}

t.test('export writes all entries in ascending petId, and an empty inventory as a header', async (t) => {
  const database = await filled(t)
  t.match(await run(t, database.url, ['export']), { code: 0, stdout: csv, stderr: '' })
  t.match(await run(t, database.url, ['export', '-']), { code: 0, stdout: csv })
  await database.query('TRUNCATE inventory')
  t.equal((await run(t, database.url, ['export'])).stdout, 'petId,quantity,status\n')
})

t.test('import restores an export exactly, whatever the name of the file', async (t) => {
  const { url } = await filled(t)
  const cwd = await temporaryFolder(t)
  const other = await testDatabase(t)
  for (const name of ['stock.csv', 'Stock 1']) {
    const { code, stdout, stderr } = await run(t, url, ['export', name], cwd)
    t.strictSame([code, stdout, stderr], [0, '', `4 entries written to ${name}\n`])
    t.equal(await readFile(path.join(cwd, name), 'utf8'), csv)
    t.equal((await run(t, other.url, ['import', name, '--mode', 'replace'], cwd)).code, 0)
    t.equal((await run(t, other.url, ['export'])).stdout, csv)
  }
})

t.test('a row security policy that would hide entries is an error, not a shorter file', async (t) => {
  const role = await testRole(t)
  const database = await filled(t)
  await database.query(
    `GRANT ALL ON inventory TO ${role.name};
     ALTER TABLE inventory ENABLE ROW LEVEL SECURITY;
     CREATE POLICY few ON inventory USING (quantity < 2)`,
  )
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), csv)
  for (const args of [['export'], ['export', 'copy.csv'], ['import', 'stock.csv']]) {
    const { code, stdout, stderr } = await run(t, role.urlOf(database.url), args, cwd)
    t.strictSame([code, stdout], [1, ''])
    t.match(
      stderr,
      /\binventory: Row security would hide rows from this role: .* Use a role that sees all rows/,
    )
  }
  t.strictSame(await readdir(cwd), ['stock.csv'])
  t.equal((await run(t, database.url, ['export'])).stdout, csv, 'the owner sees all')
})

t.test('a file keeps its mode and a link its place; a device is written to', async (t) => {
  const { url } = await filled(t)
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'real.csv'), 'old')
  await symlink('real.csv', path.join(cwd, 'link.csv'))
  // The second one has a permission that the umask takes from new files.
  for (const mode of [0o600, 0o666]) {
    await chmod(path.join(cwd, 'real.csv'), mode)
    t.equal((await run(t, url, ['export', 'link.csv'], cwd)).code, 0)
    t.equal(await readFile(path.join(cwd, 'real.csv'), 'utf8'), csv)
    t.equal((await stat(path.join(cwd, 'real.csv'))).mode & 0o777, mode)
  }
  t.strictSame((await readdir(cwd)).sort(), ['link.csv', 'real.csv'])
  await mkdir(path.join(cwd, 'folder'))
  await symlink('../new.csv', path.join(cwd, 'folder', 'link.csv'))
  await symlink('folder/link.csv', path.join(cwd, 'early.csv'))
  t.equal((await run(t, url, ['export', 'early.csv'], cwd)).code, 0)
  t.equal(await readlink(path.join(cwd, 'early.csv')), 'folder/link.csv')
  t.equal(await readlink(path.join(cwd, 'folder', 'link.csv')), '../new.csv')
  t.equal(await readFile(path.join(cwd, 'new.csv'), 'utf8'), csv, 'a link to a file that does not exist yet')
  t.equal((await run(t, url, ['export', '/dev/null'])).code, 0)
  t.ok((await stat('/dev/null')).isCharacterDevice())
})

t.test('a signal leaves the file as it was', async (t) => {
  const database = await filled(t)
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), 'old')
  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const program = await startProgram(t, 'cli', {
    args: ['export', 'stock.csv'],
    env: { DATABASE_URL: database.url },
    cwd,
  })
  await eventually('the new file', async () => ((await readdir(cwd)).length > 1 ? true : undefined))
  await waitForLocks(database)
  program.process.kill('SIGINT')
  t.match(await program.ended, { code: 130, stderr: 'inventory: interrupted; nothing was changed\n' })
  t.equal(await readFile(path.join(cwd, 'stock.csv'), 'utf8'), 'old')
  t.strictSame(await readdir(cwd), ['stock.csv'])
  await release()
})

t.test('a closed pipe ends it quietly', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 1, 'sold' FROM generate_series(1, 300000) AS n")
  const program = await startProgram(t, 'cli', { args: ['export'], env: { DATABASE_URL: database.url } })
  const { stdout } = program.process
  if (stdout === null) throw new Error('it has no output')
  await once(stdout, 'data')
  stdout.destroy()
  t.match(await program.ended, { code: 141, stderr: '' })
})

const noFullDisk = !existsSync('/dev/full') && 'there is no /dev/full'
t.test('a full disk is an error that names the file', { skip: noFullDisk }, async (t) => {
  const { url } = await filled(t)
  const { code, stderr } = await run(t, url, ['export', '/dev/full'])
  t.equal(code, 1)
  t.equal(stderr, 'inventory: /dev/full cannot be written: ENOSPC: no space left on device, write\n')
})

t.test('export fails with one message', async (t) => {
  const { url } = await testDatabase(t)
  const cwd = await temporaryFolder(t)
  for (const [args, exitCode, message] of [
    [
      ['nowhere/stock.csv'],
      1,
      /^inventory: nowhere\/stock\.csv cannot be written: there is no folder \S+\/nowhere\n/,
    ],
    [['.'], 1, /^inventory: \. cannot be written: EISDIR/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, url, ['export', ...args], cwd)
    t.strictSame([code, stdout], [exitCode, ''])
    t.match(stderr, message)
    t.notMatch(stderr, /\n\s+at /)
  }
})
