import { get } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { json } from '../support/http.ts'
import { metricsOf, total } from '../support/metrics.ts'
import { apiKey, startServer } from '../support/running-server.ts'

const ENTRIES = 1_000_000
const READERS = 20

/** How fast a reader reads, in bytes a millisecond. */
const RATE = 20_000

/** What the process may need beside two lists, in bytes; the collector decides when it gives back what it can. */
const ALLOWANCE = 128 * 1024 * 1024

/** Reads the list at the rate, and returns its size in bytes. */
function readList(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${apiKey}` }
    const request = get({ port, path: '/v1/inventory', headers, agent: false }, async (response) => {
      let size = 0
      try {
        const start = performance.now()
        for await (const chunk of response) {
          size += chunk.length
          const early = size / RATE - (performance.now() - start)
          if (early > 1) await setTimeout(early)
        }
        resolve(size)
      } catch (error) {
        reject(error)
      }
    })
    request.on('error', reject)
  })
}

t.test('twenty downloads of a million entries beside updates take the memory of two lists', async (t) => {
  const database = await testDatabase(t)
  await database.query(`INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, ${ENTRIES}) n`)
  const server = await startServer(t, { DATABASE_URL: database.url, METRICS_PORT: '0' })
  const { port, send } = server
  const { scrape } = await metricsOf(server)
  const memory = async (): Promise<number> => total(await scrape(), 'process_resident_memory_bytes')
  const before = await memory()
  let most = before
  let isReading = true
  const sizes = Promise.all(
    Array.from({ length: READERS }, async () => [await readList(port), await readList(port)]),
  ).finally(() => (isReading = false))
  let updates = 0
  while (isReading) {
    const { status } = await send('PATCH', '/v1/inventory/1', json({ quantity: ++updates }))
    if (status !== 200) t.fail(`an update was answered with ${status}`)
    most = Math.max(most, await memory())
    await setTimeout(50)
  }
  const size = Math.max(...(await sizes).flat())
  const megabytes = (bytes: number): number => Math.round(bytes / 1024 / 1024)
  t.ok(updates > 20, `${updates} updates meanwhile`)
  t.ok(
    most - before < 2 * size + ALLOWANCE,
    `${megabytes(before)} MB, at most ${megabytes(most)} MB, for lists of ${megabytes(size)} MB`,
  )
})
