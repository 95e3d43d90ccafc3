import { chmod, readdir, readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../support/command.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { type Outcome, temporaryFolder } from '../support/program.ts'
import { testRole } from '../support/roles.ts'

async function run(t: Test, url: string, args: string[], cwd?: string): Promise<Outcome> {
  return runCommand(t, args, { env: { DATABASE_URL: url }, ...(cwd === undefined ? {} : { cwd }) })
}

const csv =
  'petId,quantity,status\n-9223372036854775808,0,available\n1,2147483647,pending\n9007199254740993,5,sold\n9223372036854775807,1,available\n'

async function filled(t: Test): Promise<TestDatabase> {
  const database = await testDatabase(t)
  await database.query(
    `INSERT INTO inventory VALUES (9223372036854775807, 1, 'available'), (1, 2147483647, 'pending'),
       (9007199254740993, 5, 'sold'), (-9223372036854775808, 0, 'available')`,
  )
  return database
}

t.test('export writes all entries in ascending petId, and an import restores them exactly', async (t) => {
  const { url } = await filled(t)
  const other = await testDatabase(t)
  t.equal((await run(t, other.url, ['export'])).stdout, 'petId,quantity,status\n')
  t.match(await run(t, url, ['export']), { code: 0, stdout: csv, stderr: '' })
  t.equal((await run(t, url, ['export', '-'])).stdout, csv)
  const cwd = await temporaryFolder(t)
  t.match(await run(t, url, ['export', 'Stock 1'], cwd), {
    code: 0,
    stdout: '',
    stderr: '',
  })
  t.equal(await readFile(path.join(cwd, 'Stock 1'), 'utf8'), csv)
  t.equal((await run(t, other.url, ['import', 'Stock 1', '--mode', 'replace'], cwd)).code, 0)
  t.equal((await run(t, other.url, ['export'])).stdout, csv)
})

t.test('a row security policy that would hide rows is an error, not fewer of them', async (t) => {
  const role = await testRole(t)
  const database = await filled(t)
  await database.query(
    `GRANT ALL ON inventory, api_keys TO ${role.name};
     ALTER TABLE inventory ENABLE ROW LEVEL SECURITY;
     ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
     CREATE POLICY few ON inventory USING (quantity < 2)`,
  )
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), csv)
  for (const command of [
    'export',
    'export copy.csv',
    'import stock.csv',
    'keys list',
    'keys revoke billing',
  ]) {
    const { code, stdout, stderr } = await run(t, role.urlOf(database.url), command.split(' '), cwd)
    t.strictSame([code, stdout], [1, ''], command)
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
  const file = path.join(cwd, 'real.csv')
  await writeFile(file, 'old')
  await chmod(file, 0o600)
  await symlink('real.csv', path.join(cwd, 'link.csv'))
  t.equal((await run(t, url, ['export', 'link.csv'], cwd)).code, 0)
  t.equal(await readlink(path.join(cwd, 'link.csv')), 'real.csv')
  t.equal(await readFile(file, 'utf8'), csv)
  t.equal((await stat(file)).mode & 0o777, 0o600)
  t.strictSame((await readdir(cwd)).sort(), ['link.csv', 'real.csv'])
  t.equal((await run(t, url, ['export', '/dev/null'])).code, 0)
  t.ok((await stat('/dev/null')).isCharacterDevice())
  const stderr = 'inventory: ENOSPC: no space left on device, write.\n'
  t.match(await run(t, url, ['export', '/dev/full'], cwd), { code: 1, stdout: '', stderr })
})

t.test('an export that fails leaves the file as it was', async (t) => {
  const database = await filled(t)
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), 'old')
  await database.query(
    `ALTER TABLE inventory RENAME TO stock;
     CREATE VIEW inventory AS SELECT pet_id, quantity / 0 AS quantity, status FROM stock`,
  )
  t.match(await run(t, database.url, ['export', 'stock.csv'], cwd), { code: 1, stderr: /division by zero/ })
  t.equal(await readFile(path.join(cwd, 'stock.csv'), 'utf8'), 'old')
  t.strictSame(await readdir(cwd), ['stock.csv'])
})
