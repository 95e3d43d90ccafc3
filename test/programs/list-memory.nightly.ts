import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { connectToMetrics, total } from '../support/metrics.ts'
import { persistentCaller, startServer } from '../support/program.ts'

const IDLE_CONNECTIONS = 30

t.test('a connection that is idle after a list does not keep the list in memory', async (t) => {
  // More than is sent at once.
  const database = await testDatabase(t, { entries: 50_000 })
  const server = await startServer(t, { DATABASE_URL: database.url, METRICS_PORT: '0' })
  const { scrape } = await connectToMetrics(server)
  const externalBytes = async (): Promise<number> => total(await scrape(), 'nodejs_external_memory_bytes')

  /** Lists on a connection of its own after a change of every entry, and keeps the connection open. */
  const listAnew = async (quantity: number): Promise<number> => {
    await database.query('UPDATE inventory SET quantity = $1', [quantity])
    return (await persistentCaller(t, server.port)('GET', '/v1/inventory')).body.length
  }

  let listBytes = 0
  for (let quantity = 1; quantity <= IDLE_CONNECTIONS; quantity++) listBytes = await listAnew(quantity)
  t.ok(listBytes > 2_000_000, `a list of ${listBytes} bytes`)
  // V8 collects garbage when it has allocated enough.
  const left = await eventually('the lists to be collected', async () => {
    await server.send('GET', '/v1/inventory')
    await database.query('UPDATE inventory SET quantity = 0')
    const bytes = await externalBytes()
    return bytes < (IDLE_CONNECTIONS / 2) * listBytes ? bytes : undefined
  })
  t.comment(`${left} bytes outside of the heap after ${IDLE_CONNECTIONS} lists of ${listBytes} bytes`)
  t.equal((await server.stop()).code, 0)
})
