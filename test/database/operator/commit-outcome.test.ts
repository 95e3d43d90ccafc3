import pg from 'pg'
import t, { type Test } from 'tap'
import {
  commit,
  identityOf,
  type TransactionIdentity,
} from '../../../src/database/operator/commit-outcome.ts'
import { type TestDatabase, testDatabase } from '../../support/database.ts'
import { testRole } from '../../support/roles.ts'

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

t.test('a role that may not ask for the identity of its transaction commits it', async (t) => {
  const { name, urlOf } = await testRole(t)
  const database = await testDatabase(t)
  await database.query(`REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM public;
    GRANT INSERT ON inventory TO ${name}`)
  const url = urlOf(database.url)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  await client.query("BEGIN; INSERT INTO inventory VALUES (1, 1, 'sold')")
  const identity = await identityOf(client)
  t.equal(identity, undefined)
  await commit(client, identity, url)
  t.equal((await database.query('SELECT FROM inventory')).length, 1)
})

t.test(
  'a transaction that has written nothing has no identity, so nobody asks for its outcome',
  async (t) => {
    const { client } = await begin(t)
    await client.query('ROLLBACK; BEGIN')
    t.equal(await identityOf(client), undefined)
  },
)
