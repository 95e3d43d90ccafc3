import t from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import { startRelay } from '../support/relay.ts'

const csv =
  'petId,quantity,status\n-9223372036854775808,0,available\n1,2147483647,pending\n9007199254740993,5,sold\n9223372036854775807,1,available\n'

t.test('export writes all entries in ascending petId, and an import restores them exactly', async (t) => {
  const { url } = await testDatabase(t, { entries: csv.trim().split('\n').slice(1).reverse() })
  const other = await testDatabase(t)
  t.equal(await succeed(t, other.url, 'export'), 'petId,quantity,status')
  t.match(await inventory(t, url, 'export'), { code: 0, stdout: csv, stderr: '' })
  t.match(await inventory(t, other.url, 'import - --rows 4 --mode replace', { input: csv }), { code: 0 })
  t.equal(await succeed(t, other.url, 'export'), csv.trim())
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
