import t from 'tap'
import { addMany } from '../support/database.ts'
import { expectOneHistory, startLoad } from '../support/load.ts'
import { type OwnServer, startOwnServer } from '../support/own-server.ts'
import { startServer } from '../support/program.ts'

const pets = [1, 2, 3, 4, 5, 6, 7, 8]

/** Ends the service's connections, and those whose login has just been checked, which have no name yet. */
const DISCONNECT = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE usename = 'service' OR (usename IS NULL AND backend_type = 'client backend')`

type Act = (server: OwnServer) => Promise<unknown>

const change =
  (role: string): Act =>
  (server) =>
    server.query(`ALTER ROLE service ${role}`)

/** Changes the role, and then ends its connections. In one transaction, they could be replaced before it is committed. */
const shutOut =
  (role: string): Act =>
  (server) =>
    change(role)(server).then(() => server.query(DISCONNECT))

const failures: readonly (readonly [title: string, begin: Act, end: Act])[] = [
  ['killed', (server) => server.kill(), (server) => server.start()],
  ['restarted', (server) => server.stop(), (server) => server.start()],
  ['halted', (server) => server.suspend(), (server) => server.resume()],
  ['with no connection to spare', shutOut('CONNECTION LIMIT 0'), change('CONNECTION LIMIT -1')],
  ['refusing the login', shutOut('NOLOGIN'), change('LOGIN')],
  ['killed again', (server) => server.kill(), (server) => server.start()],
]

t.test('two processes over a failing database are linearizable, and keep nobody waiting', async (t) => {
  const database = await startOwnServer(t)
  // Enough for lists to be read by their changes.
  await addMany(database, 100)
  const servers = await Promise.all([1, 2].map(() => startServer(t, { DATABASE_URL: database.url })))
  const load = startLoad(t, { ports: servers.map(({ port }) => port), clients: 24, pets })

  for (const [title, begin, end] of failures) {
    await load.served(200)
    const failing = Promise.all([load.next('update', 'failure'), load.next('list', 'failure')])
    await begin(database)
    await failing
    // Nobody waits for the end of the outage.
    await load.answered()
    await end(database)
    await database.query('SELECT 1')
    await Promise.all([load.next('update', 'success'), load.next('list', 'success')])
    t.pass(`${title}: served again`)
  }
  await database.crash()
  await load.served(400)
  await expectOneHistory(t, load, pets, database)
  const unknown = pets.flatMap(load.readHistory).filter(({ ended }) => ended === Infinity)
  t.ok(unknown.length > 0, `of ${unknown.length} updates the outcome was unknown`)
  for (const server of servers) {
    t.equal(server.process.exitCode ?? server.process.signalCode, null, 'it is the same process')
    t.equal((await server.stop()).code, 0)
  }
})
