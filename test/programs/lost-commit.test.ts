import t, { type Test } from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { startRelay } from '../support/relay.ts'

/**
 * Returns the address of a database by a way on which the connection is lost around its first COMMIT: before PostgreSQL receives
 * it, or after it has committed. Later connections reach the database.
 */
async function losingCommit(t: Test, databaseUrl: string, moment: 'before' | 'after'): Promise<string> {
  let commit: 'awaited' | 'sent' | 'lost' = 'awaited'
  const relay = await startRelay(t, databaseUrl, {
    towardsDatabase(bytes) {
      if (commit !== 'awaited' || !bytes.includes('COMMIT\0')) return bytes
      commit = moment === 'before' ? 'lost' : 'sent'
      return moment === 'before' ? undefined : bytes
    },
    towardsClient(bytes) {
      if (commit !== 'sent') return bytes
      commit = 'lost'
      return undefined
    },
  })
  return relay.url
}

/** Commands, and a query that finds what each has made. */
const commands = [
  ['import - --rows 1', 'SELECT FROM inventory WHERE quantity = 5'],
  ['keys create --name new', "SELECT FROM api_keys WHERE name = 'new'"],
  ['keys rotate old', 'SELECT FROM api_keys WHERE revoked_at IS NOT NULL'],
  ['migrate up', "SELECT WHERE to_regclass('inventory') IS NOT NULL"],
] as const

for (const moment of ['before', 'after'] as const) {
  t.test(`a command whose connection is lost ${moment} COMMIT says how to find out`, async (t) => {
    for (const [command, made] of commands) {
      const empty = command === 'migrate up'
      const database = await testDatabase(t, { empty })
      if (!empty) await addKey(database, 'old')
      const url = await losingCommit(t, database.url, moment)
      const { code, stdout, stderr } = await inventory(t, url, command, { input: 'petId,quantity\n1,5\n' })
      t.equal(code, 4, stderr)
      t.match(stdout, command.startsWith('keys') ? /^inv_\w+\n$/ : /^$/, command)
      t.match(stderr, /^inventory: It is unknown whether .* was committed: .*\. To find out, run /m, command)
      t.notMatch(stderr, /nothing was changed|\n {4}at /, command)
      t.equal((await database.query(made)).length, moment === 'after' ? 1 : 0, command)
      await succeed(t, database.url, 'migrate up')
    }
  })
}
