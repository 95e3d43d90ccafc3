import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { mixedLoad } from '../support/mixed-load.ts'
import { type Usage, usageOf } from '../support/process-usage.ts'
import { startServer } from '../support/running-server.ts'

t.test('requests of every kind and their aborts leave no connection behind', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 5000) n")
  const server = await startServer(t, { DATABASE_URL: database.url })
  const load = async (requests: number): Promise<void> => {
    let left = requests
    await mixedLoad({ port: server.port, callers: 30, goesOn: () => left-- > 0 })
  }
  const connections = async (): Promise<number> => {
    const [row] = await database.query(
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'petstore-inventory server' AND datname = current_database()",
    )
    return Number(row?.['count'])
  }
  /** What is in use once the sockets of clients that left are closed. */
  const atRest = async (): Promise<Usage | undefined> => {
    for (;;) {
      const before = await usageOf(server.process.pid)
      await setTimeout(300)
      const usage = await usageOf(server.process.pid)
      if (usage?.files === before?.files) return usage
    }
  }
  await load(300)
  const before = await atRest()
  await load(1200)
  const after = await atRest()
  t.ok((await connections()) <= 11, 'as many connections to the database as it may have')
  if (before !== undefined && after !== undefined) {
    // The pool may have opened what it may after the first count.
    t.ok(after.files <= before.files + 10, `${before.files} open files before, ${after.files} after`)
  }
  const { code, stdout } = await server.stop()
  t.equal(code, 0, 'nothing keeps it from stopping')
  t.notMatch(stdout, /"level":(50|60)/)
})
