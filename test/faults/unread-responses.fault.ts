import { Agent } from 'node:http'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { run } from '../support/program.ts'
import { root } from '../support/root.ts'
import { startServer } from '../support/running-server.ts'

/** More connections than the server accepts, and for how long further ones follow. */
const COUNT = 10_300
const SECONDS = 30
const PER_SECOND = 50

const MAX_MEMORY_MB = 300

t.test('clients that send requests and read nothing keep nobody from being served', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const server = await startServer(t, { DATABASE_URL: database.url })
  const { port } = server
  server.process.stdout?.removeAllListeners('data').resume()

  const script = path.join(root, 'test/support/unread-responses.py')
  const flood = run(t, 'python3', [script, port, COUNT, SECONDS, PER_SECOND].map(String))

  const agent = new Agent({ keepAlive: true, maxSockets: 2 })
  t.teardown(() => agent.destroy())
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
  const failures: string[] = []
  const waits: number[] = []
  let isFlooding = true
  let memory = 0
  const measure = async (name: string, call: () => Promise<{ status: number }>): Promise<void> => {
    const start = performance.now()
    const outcome = await call().then(
      ({ status }) => String(status),
      (error: unknown) => String(error),
    )
    waits.push(performance.now() - start)
    if (outcome !== '200') failures.push(`${name}: ${outcome}`)
  }
  const repeat = async (
    name: string,
    call: (count: number) => Promise<{ status: number }>,
  ): Promise<void> => {
    for (let count = 0; isFlooding; count++) {
      await measure(name, () => call(count))
      memory = Math.max(memory, (await usageOf(server.process.pid))?.memory ?? 0)
      await setTimeout(50)
    }
  }
  const callers = Promise.all([
    repeat('update', (quantity) => send('PATCH', '/v1/inventory/1', json({ quantity }))),
    repeat('list', () => send('GET', '/v1/inventory')),
    repeat('health check', () => callerOf(port)('GET', '/livez')),
  ])
  await flood.output(/open/)
  t.comment(`all connections are open after ${waits.length} polite requests`)
  const { code, stderr } = await flood.ended
  isFlooding = false
  await callers
  t.equal(code, 0, `all connections were opened ${stderr}`)
  waits.sort((a, b) => a - b)
  t.comment(
    `${waits.length} polite requests: median ${waits[waits.length >> 1]?.toFixed(0)} ms, 99 % ${waits[Math.floor(waits.length * 0.99)]?.toFixed(0)} ms, most ${waits.at(-1)?.toFixed(0)} ms; ${failures.length} failed; ${memory.toFixed(0)} MB`,
  )
  t.strictSame(failures.slice(0, 5), [], 'every polite request is served')
  t.ok(memory < MAX_MEMORY_MB, `${memory.toFixed(0)} MB`)
})
