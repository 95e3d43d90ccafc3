import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { migrate } from '../../src/database/admin/migrate.ts'
import { serverAccount } from '../../src/local/server-process.ts'
import { compareLists, FIRST_ENTRIES } from '../inventory/list/histories.ts'
import { startApp } from '../support/app.ts'
import { findPrograms, giveToServer, SERVICE, startInstalled } from '../support/own-server.ts'

const run = promisify(execFile)

/** The transaction id that a server begins with is as high as this at least. */
const JUMP = 2n ** 30n

/** Transactions of the history before an id that rows, snapshots or the function `age` represent in another way. */
const BEFORE = 100n

/** Transactions in one file of `pg_xact`, which has two bits for each. */
const PER_FILE = 2 ** 20

/** Starts a server of which the tests say which transaction id comes next. */
async function startServer(t: Test) {
  // The embedded server comes without pg_resetwal.
  const programs = findPrograms(15)
  const settings = { fsync: 'off', max_prepared_transactions: '20', autovacuum: 'off' }
  const server = await startInstalled(t, programs, settings)
  const { query, data } = server
  await migrate({ url: server.superuserUrl, direction: 'up' })
  await query(
    `CREATE ROLE ${SERVICE} LOGIN; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${SERVICE};
     UPDATE pg_database SET datistemplate = false; ${FIRST_ENTRIES}`,
  )
  // PostgreSQL stops when the oldest row of any database is too old.
  for (const database of ['template0', 'template1']) await query(`DROP DATABASE ${database}`)
  return {
    server,

    /** Makes the server begin with a transaction id. Rows must not be older than 2^31 transactions, so this goes in steps. */
    async setNextId(id: bigint): Promise<void> {
      await query('VACUUM (FREEZE)')
      await server.stop()
      const segment = (BigInt.asUintN(32, id) / BigInt(PER_FILE)).toString(16).toUpperCase()
      const file = path.join(data, 'pg_xact', segment.padStart(4, '0'))
      await writeFile(file, Buffer.alloc(PER_FILE / 4))
      await giveToServer(file)
      const options = [`-e${id >> 32n}`, `-x${BigInt.asUintN(32, id)}`, data]
      await run(path.join(programs, 'pg_resetwal'), options, serverAccount())
      await server.start()
      await query('VACUUM (FREEZE)')
    },
  }
}

t.test('every list is what SQL says while transaction ids exceed 2^31, 2^32 and 2^33', async (t) => {
  const { server, setNextId } = await startServer(t)
  const nextId = async (): Promise<bigint> =>
    BigInt((await server.query('SELECT pg_current_xact_id() AS id'))[0]?.['id'] ?? 0)

  let next = 0n
  for (const limit of [2n ** 31n, 2n ** 32n, 2n ** 33n]) {
    await t.test(`2^${limit.toString(2).length - 1}`, async (t) => {
      while (next + JUMP < limit - 2n * BEFORE) {
        next += JUMP
        await setNextId(next)
      }
      next = limit - 2n * BEFORE
      await setNextId(next)
      while ((await nextId()) < limit - BEFORE);
      await compareLists(t, server, 250)
      t.ok((await nextId()) > limit, 'the ids of transactions have exceeded it')
      next = limit
    })
  }
})

t.test('a list after a change reads only changes, however old the other entries are', async (t) => {
  const { server, setNextId } = await startServer(t)
  // The entries that are not updated below are from before all jumps.
  for (const jump of [1n, 2n, 3n]) {
    await setNextId(jump * JUMP)
    await server.query(`UPDATE inventory SET quantity = 1000 WHERE pet_id % 4 = ${jump}`)
  }
  const { send, metric } = await startApp(t, server.url)
  await send('GET', '/v1/inventory')
  for (let quantity = 1; quantity <= 5; quantity++) {
    await server.query(`UPDATE inventory SET quantity = ${quantity} WHERE pet_id = 7`)
    t.match((await send('GET', '/v1/inventory')).text, `{"petId":7,"quantity":${quantity},`)
  }
  for (const [result, count] of Object.entries({ read: 1, changed: 5 }))
    t.equal(await metric('inventory_lists_total', { result }), count, result)
})
