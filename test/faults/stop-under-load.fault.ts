import t, { type Test } from 'tap'
import { testDatabase } from '../support/database.ts'
import { findContradiction } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { freePort } from '../support/ports.ts'
import { startServer } from '../support/program.ts'

const REQUESTS = 20_000
const ROUNDS = 10
const CLIENTS = 32
const pets = Array.from({ length: CLIENTS }, (_, index) => index + 1)

async function stopUnderLoad(t: Test, keepAlive: boolean): Promise<void> {
  const database = await testDatabase(t, { entries: CLIENTS })
  const port = await freePort()
  const start = () => startServer(t, { DATABASE_URL: database.url, PORT: String(port) })
  let server = await start()
  const load = startLoad(t, { ports: [port], clients: CLIENTS, pets, keepAlive })
  for (let round = 1; round <= ROUNDS; round++) {
    await load.served(REQUESTS / ROUNDS)
    t.equal((await server.stop()).code, 0)
    server = await start()
  }
  await load.stop()
  // Of a connection that was refused, nothing of the request was sent, so it is not lost.
  const lost = load.failures.filter(({ error }) => error !== 'ECONNREFUSED')
  t.comment(`${lost.length} of ${load.successes} requests were lost, in ${ROUNDS} stops`)
  // A connection that is opened as the port closes may be reset, so callers with a new one for each request lose more.
  if (keepAlive) t.ok(lost.length <= ROUNDS, 'at most one connection of each stop was idle for too long')
  const others = lost.filter(({ error }) => error !== 'ECONNRESET')
  t.strictSame(others, [], 'nothing else was lost')
  for (const pet of pets) t.equal(findContradiction(load.readHistory(pet), 0), undefined)
}

t.test('a stop loses no request on persistent connections', (t) => stopUnderLoad(t, true))
t.test('a stop loses new connections alone, as the port closes', (t) => stopUnderLoad(t, false))
