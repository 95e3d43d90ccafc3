import pg from 'pg'
import t, { type Test } from 'tap'
import { commit, identityOf, type TransactionIdentity } from '../../src/database/commit-outcome.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'

interface Begun {
  readonly database: TestDatabase
  readonly client: pg.Client
  readonly identity: TransactionIdentity | undefined
}

/** A transaction that has written a row. */
async function begin(t: Test): Promise<Begun> {
  const database = await testDatabase(t)
  const client = new pg.Client({ connectionString: database.url })
  client.on('error', () => {})
  await client.connect()
  t.teardown(() => client.end())
  await client.query("BEGIN; INSERT INTO inventory VALUES (1, 1, 'sold')")
  return { database, client, identity: await identityOf(client) }
}

const terminate = ({ database }: Begun): Promise<unknown> =>
  database.query(
    `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
     WHERE datname = current_database() AND state = 'idle in transaction'`,
  )

t.test('the outcome of a lost commit is known only from a server with the same history', async (t) => {
  const begun = await begin(t)
  const { database, client, identity } = begun
  t.match(identity, { xid: /^\d+$/, history: /./ })
  await terminate(begun)
  await t.rejects(commit(client, identity, database.url), { name: 'DatabaseUnavailableError' })
  // After a crash, the id may be that of another transaction.
  const earlier = identity && { ...identity, history: `${identity.history} earlier` }
  await t.rejects(commit(client, earlier, database.url), { name: 'OutcomeUnknownError' })
  await t.rejects(commit(client, undefined, database.url), { name: 'OutcomeUnknownError' })
})

t.test('a transaction with a failed statement is not reported as committed', async (t) => {
  const { database, client, identity } = await begin(t)
  await t.rejects(client.query('SELECT 1 / 0'), { code: '22012' })
  await t.rejects(commit(client, identity, database.url), { message: /rolled back/ })
  t.strictSame(await database.query('SELECT FROM inventory'), [])
})
