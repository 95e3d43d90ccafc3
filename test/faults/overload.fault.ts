import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { apiKey } from '../support/app.ts'
import { entrancesOf } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { openRaw } from '../support/raw.ts'
import { type RunningServer, startServer } from '../support/running-server.ts'

/** Ten times as many connections as keep one process fully at work, or as many as this process may open. */
const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
const COUNT = Math.min(5000, Number(/Max open files +(\d+)/.exec(limits)?.[1] ?? 1024) - 200)
const DURATION = 20_000

/** Attacks a port, and watches the process behind it. */
async function overload(t: Test, server: RunningServer, port: number): Promise<void> {
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` })
  const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`

  const statuses = new Map<string, number>()
  const latencies: number[] = []
  const sockets = await Promise.all(
    Array.from({ length: COUNT }, async () => {
      const { socket } = await openRaw(port)
      socket.removeAllListeners('data')
      let since = performance.now()
      let missing = 0
      socket.on('data', (chunk: Buffer) => {
        if (missing === 0) {
          const head = chunk.toString('latin1')
          const status = head.slice(9, 12)
          statuses.set(status, (statuses.get(status) ?? 0) + 1)
          latencies.push(performance.now() - since)
          const length = Number(/content-length: (\d+)/i.exec(head)?.[1])
          missing = head.indexOf('\r\n\r\n') + 4 + length
        }
        missing -= chunk.length
        if (missing > 0) return
        since = performance.now()
        socket.write(list)
      })
      socket.write(list)
      return socket
    }),
  )
  const lost = (): number => sockets.filter(({ destroyed }) => destroyed).length
  const start = performance.now()
  const memory: number[] = []
  const probes: number[] = []
  while (performance.now() - start < DURATION) {
    const since = performance.now()
    t.equal((await callerOf(port)('GET', '/livez')).status, 200)
    probes.push(performance.now() - since)
    memory.push((await usageOf(server.process.pid))?.memory ?? 0)
    await setTimeout(500)
  }
  t.equal(lost(), 0, 'no connection was lost')
  for (const socket of sockets) socket.destroy()
  const end = performance.now()
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))).status, 200)
  t.match((await send('GET', '/v1/inventory')).text, '[{"petId":1,"quantity":5,')
  t.comment(`normal again after ${(performance.now() - end).toFixed(0)} ms`)

  t.strictSame([...statuses.keys()], ['200'])
  latencies.sort((a, b) => a - b)
  const [half, most] = [memory[Math.floor(memory.length / 2)] ?? 0, memory.at(-1) ?? 0]
  t.comment(`answers: ${JSON.stringify(Object.fromEntries(statuses))}`)
  t.comment(
    `latency in ms: median ${latencies[latencies.length >> 1]?.toFixed(0)}, 99 % ${latencies[Math.floor(latencies.length * 0.99)]?.toFixed(0)}, most ${latencies.at(-1)?.toFixed(0)}`,
  )
  t.comment(
    `/livez: most ${Math.max(...probes).toFixed(0)} ms; memory: ${half.toFixed(0)} then ${most.toFixed(0)} MB`,
  )
  t.ok(most < half * 1.25 + 50, 'memory is flat')
}

t.test(`${COUNT} connections with a request under way at all times`, async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 1000) n")
  const server = await startServer(t, { DATABASE_URL: database.url })
  server.process.stdout?.removeAllListeners('data').resume()
  for (const [name, port] of await entrancesOf(t, server.port)) {
    await t.test(name, (t) => overload(t, server, port))
  }
})
