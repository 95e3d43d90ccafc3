import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { entrancesOf } from '../support/balancer.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { startFlood } from '../support/flood.ts'
import { callerOf, json } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { startServer } from '../support/running-server.ts'

/** Connections, and the requests that each of them pipelines at once. */
const floods = [
  [4, 5000],
  [8, 2500],
  [64, 200],
  [500, 20],
] as const
const keys = {
  'without a key': '',
  'with a wrong key': 'Authorization: Bearer wrong\r\n',
  'with a right key': `Authorization: Bearer ${apiKey}\r\n`,
}
const body = '{"quantity":1}'
const requests = {
  lists: (key: string) => `GET /v1/inventory HTTP/1.1\r\nHost: x\r\n${key}\r\n`,
  updates: (key: string) =>
    `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${key}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
}

/** Polite callers, each with one request at a time, and how many requests they send. */
const CALLERS = 4
const MIN_REQUESTS = 200
const PAUSE_MS = 5

/**
 * How many answers the flood may get while a polite caller waits for its own, at the 99th percentile. Served one after the
 * other, 4 connections with 5,000 requests would get 20,000. A list or an update also waits for PostgreSQL.
 */
const MAX_ANSWERS_DURING_REQUEST = 5000
const MAX_ANSWERS_DURING_LIVEZ = 1000

/** One request of a polite caller: how long it took, and how many answers the flood got meanwhile. */
interface Wait {
  readonly milliseconds: number
  readonly answersToOthers: number
}

t.test('floods of pipelined requests keep nobody else waiting', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 0, 'available'],
    ...Array.from(
      { length: CALLERS },
      (_, caller) => [String(caller + 2), 0, 'sold'] as [string, number, string],
    ),
  ])
  const server = await startServer(t, { DATABASE_URL: database.url })
  server.process.stdout?.removeAllListeners('data').resume()

  for (const [entrance, port] of await entrancesOf(t, server.port)) {
    for (const [connections, pipelined] of floods) {
      for (const [keyName, key] of Object.entries(keys)) {
        for (const [work, request] of Object.entries(requests)) {
          const name = `${connections} connections with ${pipelined} ${work} each, ${keyName}, ${entrance}`
          const flood = startFlood(t, { port, connections, pipelined, request: request(key) })
          while (flood.answers < 100) await setTimeout(5)
          const failures: string[] = []
          const before = flood.answers
          const start = performance.now()
          const calls: Wait[] = []
          const probes: Wait[] = []
          const measure = async (waits: Wait[], call: () => Promise<void>): Promise<void> => {
            const since = performance.now()
            const answers = flood.answers
            await call().catch((error: unknown) => failures.push(String(error)))
            waits.push({ milliseconds: performance.now() - since, answersToOthers: flood.answers - answers })
            await setTimeout(PAUSE_MS)
          }
          let isProbing = true
          const probe = async (): Promise<void> => {
            while (isProbing) {
              await measure(probes, async () => {
                const { status } = await callerOf(port)('GET', '/livez')
                if (status !== 200) failures.push(`/livez: ${status}`)
              })
            }
          }
          const caller = async (_: unknown, index: number): Promise<void> => {
            const agent = new Agent({ keepAlive: true, maxSockets: 1 })
            const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
            for (let quantity = 1; quantity <= MIN_REQUESTS / CALLERS / 2; quantity++) {
              await measure(calls, async () => {
                const { status, text } = await send('PATCH', `/v1/inventory/${index + 2}`, json({ quantity }))
                if (status !== 200 || JSON.parse(text).quantity !== quantity)
                  failures.push(`${status} ${text}`)
              })
              await measure(calls, async () => {
                const { status, text } = await send('GET', '/v1/inventory')
                if (status !== 200 || JSON.parse(text)[index + 1].quantity !== quantity)
                  failures.push(`${status} ${text}`)
              })
            }
            agent.destroy()
          }
          const probing = probe()
          await Promise.all(Array.from({ length: CALLERS }, caller))
          isProbing = false
          await probing
          const seconds = (performance.now() - start) / 1000
          const rate = (flood.answers - before) / seconds
          flood.stop()

          t.strictSame(failures.slice(0, 5), [], `${name}: every polite request is served`)
          const duringRequest = p99(calls, 'answersToOthers')
          const duringLivez = p99(probes, 'answersToOthers')
          t.ok(
            duringRequest <= MAX_ANSWERS_DURING_REQUEST && duringLivez <= MAX_ANSWERS_DURING_LIVEZ,
            `${name}: ${duringRequest} answers to the flood during a request, ${duringLivez} during /livez`,
          )
          const { memory = 0 } = (await usageOf(server.process.pid)) ?? {}
          t.comment(
            `${calls.length} requests: 99 % within ${p99(calls, 'milliseconds').toFixed(0)} ms; ${probes.length} /livez on new connections: 99 % within ${p99(probes, 'milliseconds').toFixed(0)} ms; ${rate.toFixed(0)} answers/s to the flood, ${memory.toFixed(0)} MB`,
          )
        }
      }
    }
  }
})

function p99(waits: readonly Wait[], of: keyof Wait): number {
  const sorted = waits.map((wait) => wait[of]).sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length * 0.99)] ?? 0
}
