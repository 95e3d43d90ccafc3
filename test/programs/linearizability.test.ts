import t from 'tap'
import { addMany } from '../support/database.ts'
import { contradictionIn } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { startOwnServer } from '../support/own-server.ts'
import { startServer } from '../support/program.ts'

/** The pets whose entries the clients update. */
const pets = [1, 2, 3]

t.test('two processes over a database that is killed are linearizable', async (t) => {
  const database = await startOwnServer(t)
  // Enough for lists to be read by their changes.
  await addMany(database, 100)
  const servers = await Promise.all([1, 2].map(() => startServer(t, { DATABASE_URL: database.url })))
  const ports = servers.map(({ port }) => port)
  const load = startLoad(t, { ports, clients: 24, pets })

  for (let round = 0; round < 2; round++) {
    await load.served(400)
    const failing = Promise.all([load.next('update', 'failure'), load.next('list', 'failure')])
    await database.kill()
    await failing
    await database.start()
    await load.served(400)
    await database.crash()
  }
  await load.served(400)
  await load.stop()

  let unanswered = 0
  for (const pet of pets) {
    const history = load.historyOf(pet)
    unanswered += history.filter(({ ended }) => ended === Number.POSITIVE_INFINITY).length
    t.equal(
      contradictionIn(history, 0),
      undefined,
      `${history.length} operations on pet ${pet} have an order`,
    )
  }
  t.ok(unanswered > 0, `of ${unanswered} updates the outcome was unknown`)
})
