import t, { type Test } from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { type TestDatabase, testDatabase, testRole } from '../support/database.ts'
import { startRelay } from '../support/relay.ts'

const csv =
  'petId,quantity,status\n-9223372036854775808,0,available\n1,2147483647,pending\n9007199254740993,5,sold\n9223372036854775807,1,available\n'

/** A database with these entries, which were added in another order. */
const filled = (t: Test): Promise<TestDatabase> =>
  testDatabase(t, { entries: csv.trim().split('\n').slice(1).reverse() })

t.test('export writes all entries in ascending petId, and an import restores them exactly', async (t) => {
  const { url } = await filled(t)
  const other = await testDatabase(t)
  t.equal(await succeed(t, other.url, 'export'), 'petId,quantity,status')
  t.match(await inventory(t, url, 'export'), { code: 0, stdout: csv, stderr: '' })
  t.match(await inventory(t, other.url, 'import - --rows 4 --mode replace', { input: csv }), { code: 0 })
  t.equal(await succeed(t, other.url, 'export'), csv.trim())
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
  for (const command of ['export', 'import - --rows 4', 'keys list', 'keys revoke billing']) {
    const outcome = await inventory(t, role.toUrl(database.url), command, { input: csv })
    const stderr = /\binventory: Row security would hide rows from this role: .* Use a role that sees all/
    t.match(outcome, { code: 1, stdout: '', stderr }, command)
  }
  t.equal(await succeed(t, database.url, 'export'), csv.trim(), 'the owner sees all')
})

t.test('an export that fails half-way says so by its exit code', async (t) => {
  const database = await testDatabase(t, { entries: 50_000 })
  let size = 0
  const relay = await startRelay(t, database.url, {
    towardsClient: (bytes) => {
      size += bytes.length
      return size < 200_000 ? bytes : undefined
    },
  })
  const { code, stdout, stderr } = await inventory(t, relay.url, 'export')
  t.match(
    { code, stdout, stderr },
    { code: 1, stdout: 'petId,quantity,status\n1,0,sold\n', stderr: /Connection terminated/ },
  )
  t.notMatch(stdout, '\n50000,')
})
