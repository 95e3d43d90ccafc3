import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { freePort } from '../support/other-program.ts'
import { apiKey, startServer } from '../support/running-server.ts'

const REQUESTS = 20_000
const ROUNDS = 10
const CLIENTS = 32

interface Counts {
  answered: number
  readonly lost: string[]
}

/** Has clients update and list, each with one request after the other, until the service refuses their connections. */
async function load(port: number, keepAlive: boolean, counts: Counts): Promise<void> {
  const client = async (number: number): Promise<void> => {
    const agent = new Agent({ keepAlive, maxSockets: 1 })
    const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
    for (let count = 0; ; count++) {
      try {
        const { status } =
          count % 2 === 0
            ? await send('GET', '/v1/inventory')
            : await send('PATCH', `/v1/inventory/${number + 1}`, json({ quantity: count }))
        if (status === 200) counts.answered++
        else counts.lost.push(String(status))
      } catch (error) {
        const code = error instanceof Error && 'code' in error ? String(error.code) : String(error)
        // Nothing of the request was sent, so it is not lost.
        if (code === 'ECONNREFUSED') break
        counts.lost.push(code)
      }
      await setTimeout(Math.random() * 10)
    }
    agent.destroy()
  }
  await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)))
}

async function stopUnderLoad(t: Test, keepAlive: boolean): Promise<void> {
  const database = await testDatabase(t)
  await addEntries(
    database,
    Array.from({ length: CLIENTS }, (_, index) => [String(index + 1), 0, 'available']),
  )
  const port = await freePort()
  const counts: Counts = { answered: 0, lost: [] }
  for (let round = 1; round <= ROUNDS; round++) {
    const server = await startServer(t, { DATABASE_URL: database.url, PORT: String(port) })
    const clients = load(port, keepAlive, counts)
    // The last requests come while the service stops.
    const enough = (REQUESTS / ROUNDS) * round
    const deadline = performance.now() + 120_000
    while (counts.answered < enough) {
      if (performance.now() > deadline)
        throw new Error(`only ${counts.answered} of ${enough} requests are answered`)
      await setTimeout(5)
    }
    server.process.kill('SIGTERM')
    await clients
    t.equal((await server.ended).code, 0)
  }
  t.comment(`${counts.lost.length} of ${counts.answered} requests were lost, in ${ROUNDS} stops`)
  t.ok(counts.lost.length <= ROUNDS, 'at most one connection of each stop was opened as the port closed')
  t.strictSame(
    counts.lost.filter((reason) => reason !== 'ECONNRESET'),
    [],
    'nothing else was lost',
  )
}

t.test('a stop loses no request on persistent connections', (t) => stopUnderLoad(t, true))
t.test('a stop loses no request on new connections', (t) => stopUnderLoad(t, false))
