import { connect } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { apiKey, startApp, type TestApp } from '../support/app.ts'
import { entrancesOf } from '../support/balancer.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'

const COUNT = 50
const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`

/** Reads lists slowly at a port, while another client uses it. */
async function readSlowly(t: Test, log: TestApp['log'], port: number): Promise<void> {
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` })
  const earlier = log.length
  const bytes: number[] = []
  for (let index = 0; index < COUNT; index++) {
    bytes[index] = 0
    const callback = (count: number): boolean => {
      bytes[index] = (bytes[index] ?? 0) + count
      return false
    }
    const socket = connect({ host: '127.0.0.1', port, onread: { buffer: Buffer.alloc(1), callback } })
    socket.on('error', () => {})
    const timer = setInterval(() => socket.resume(), 1000)
    t.teardown(() => {
      clearInterval(timer)
      socket.destroy()
    })
    socket.write(list)
  }
  // Their own ends of the connections have megabytes to read first: only the service knows that it has cut them off.
  const cutOff = (): number => log.slice(earlier).filter(({ aborted }) => aborted === true).length
  let served = 0
  while (cutOff() < COUNT) {
    const quantity = served++
    const update = await send('PATCH', '/v1/inventory/1', json({ quantity }))
    const current = await send('GET', '/v1/inventory')
    if (update.status !== 200 || !current.text.startsWith(`[{"petId":1,"quantity":${quantity},`)) {
      t.fail(`${update.status} ${current.status}`)
      break
    }
    await setTimeout(100)
  }
  t.ok(served > 20, `${served} updates and whole lists meanwhile`)
  t.ok(Math.max(...bytes) < 1000, 'they were slow')
}

t.test('clients that read a byte a second hold up nobody, and are cut off', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 300000) n")
  const { port: server, log } = await startApp(t, database.url)
  for (const [name, port] of await entrancesOf(t, server)) {
    await t.test(name, (t) => readSlowly(t, log, port))
  }
})
