import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { pino } from 'pino'
import t from 'tap'
import { loadConfig } from '../../../src/config/config.ts'
import { buildApp } from '../../../src/http/app.ts'
import { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { connectService, serviceTimings } from '../../../src/service.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase, waitForLocks } from '../../support/database.ts'
import { isError } from '../../support/error-shape.ts'
import { until } from '../../support/eventually.ts'
import { openRaw, type RawConnection } from '../../support/raw.ts'

const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`
// Answered with 404, without the database.
const nothing = list.replace('/inventory', '/nothing')
const lastNothing = nothing.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')

/** A check of API keys that accepts each one, and can be held up. */
class KeyCheck {
  calls = 0
  release = (): void => {}
  #released = Promise.resolve()

  /** Holds up the checks from now on until `release` is called. */
  hold(): void {
    this.#released = new Promise((resolve) => {
      this.release = resolve
    })
  }

  readonly find = async (): Promise<{ name: string }> => {
    this.calls++
    await this.#released
    return { name: 'tests' }
  }
}

t.test('refuses requests when too many are in flight, whether or not their clients stay', async (t) => {
  const database = await testDatabase(t)
  const keyCheck = new KeyCheck()
  const statistics = new RequestStatistics()
  const { port, send } = await startApp(t, database.url, {
    app: { requestStatistics: statistics, findApiKey: keyCheck.find },
  })
  keyCheck.hold()
  while (keyCheck.calls < 10_000) {
    const clients = await Promise.all(Array.from({ length: 500 }, () => openRaw(port)))
    const enough = keyCheck.calls + clients.length
    for (const { socket } of clients) socket.write(nothing)
    await until(`${enough} requests in flight`, () => keyCheck.calls >= enough)
    await Promise.all(clients.map(reset))
  }
  t.equal(statistics.inFlight, 10_000)
  const { text, ...refused } = await send('GET', '/v1/nothing')
  isError(
    t,
    { ...refused, contentType: refused.headers['content-type'], body: text },
    503,
    'service_unavailable',
  )
  t.match(text, /Too many requests are in flight/)
  t.equal(refused.headers['retry-after'], '1')
  t.equal(keyCheck.calls, 10_000, 'nothing was done for the refused request')
  t.equal((await send('GET', '/livez')).status, 200)
  keyCheck.release()
  await until('the end of the requests', () => statistics.inFlight === 0)
  t.equal((await send('GET', '/v1/nothing')).status, 404)
})

t.test('every request gives back its slot once, whichever way it ends', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const statistics = new RequestStatistics()
  const keyCheck = new KeyCheck()
  const { port, send } = await startApp(t, database.url, {
    app: { requestStatistics: statistics, findApiKey: keyCheck.find },
  })
  let least = 0
  const watch = setInterval(() => (least = Math.min(least, statistics.inFlight, statistics.queued)), 1)
  t.teardown(() => clearInterval(watch))
  const isEmpty = async (name: string): Promise<void> => {
    for (const start = performance.now(); statistics.inFlight !== 0 || statistics.queued !== 0; ) {
      if (performance.now() - start > 10_000) break
      await setTimeout(5)
    }
    t.strictSame([statistics.inFlight, statistics.queued], [0, 0], name)
  }
  const patch = `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"quantity":1}`
  const twoHosts = nothing.replace('Host: x', 'Host: x\r\nHost: x')
  const resets: Record<string, string> = {
    'pipelined updates': patch.repeat(500),
    'pipelined updates without an entry': patch.replace('/1 ', '/2 ').repeat(500),
    'pipelined lists': list.repeat(500),
    'pipelined 404s': nothing.repeat(500),
    'requests that the first hook refuses': twoHosts.repeat(500),
    'half a body': patch.slice(0, -5),
    'half a body behind other requests': `${nothing.repeat(20)}${patch.slice(0, -5)}`,
    'requests of which one is malformed': `${nothing.repeat(20)}garbage\r\n\r\n`,
    'requests and CONNECT': `${nothing.repeat(20)}CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n`,
    'requests behind one with Connection: close': lastNothing + nothing.repeat(20),
  }
  for (const [name, bytes] of Object.entries(resets)) {
    for (const waitsForAnswer of [false, true]) {
      const clients = await Promise.all(Array.from({ length: 4 }, () => openRaw(port)))
      const before = keyCheck.calls
      for (const { socket } of clients) socket.write(bytes)
      if (waitsForAnswer && !name.startsWith('half a body')) {
        await Promise.all(clients.map(({ socket }) => once(socket, 'data')))
      } else if (!bytes.startsWith(twoHosts)) {
        await until('every key to be looked up', () => keyCheck.calls >= before + clients.length)
      }
      await Promise.all(clients.map(reset))
      await isEmpty(`${name}, reset ${waitsForAnswer ? 'after an answer' : 'before'}`)
    }
  }

  keyCheck.hold()
  keyCheck.calls = 0
  const clients = await Promise.all(Array.from({ length: 200 }, () => openRaw(port)))
  for (const { socket } of clients) socket.write(patch.repeat(5))
  await until('all requests to arrive', () => statistics.inFlight + statistics.queued >= 5 * clients.length)
  const started = statistics.inFlight
  t.ok(started >= clients.length)
  t.equal(keyCheck.calls, started)
  await Promise.all(clients.map(reset))
  await until('the queued requests to be dropped', () => statistics.queued === 0)
  t.equal(statistics.inFlight, started, 'started work keeps its slot')
  keyCheck.release()
  await isEmpty('the clients left while their keys were looked up')

  // After a commit, the list is read again.
  await database.query('UPDATE inventory SET quantity = 2')
  const unlock = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const client = await openRaw(port)
  client.socket.write(list)
  await waitForLocks(database)
  await reset(client)
  t.equal((await send('GET', '/livez')).status, 200)
  await setTimeout(50)
  t.equal(statistics.inFlight, 1, 'so does a list that is being read')
  await unlock()
  await isEmpty('the client left while its list was read')
  t.equal(least, 0, 'never less than none')
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

t.test('a request that Fastify injects has no slot, and is answered', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const config = loadConfig({ DATABASE_URL: database.url, API_KEYS: apiKey })
  const parts = await connectService(
    { ...config, databaseUrl: database.url, version: '', tracing: undefined },
    serviceTimings,
    pino({ level: 'silent' }),
  )
  const app = await buildApp(parts.app)
  t.teardown(() => app.close().then(parts.close))
  const headers = { authorization: `Bearer ${apiKey}` }
  const update = async (petId: number): Promise<[status: number, body: string]> => {
    const url = `/v1/inventory/${petId}`
    const { statusCode, body } = await app.inject({
      method: 'PATCH',
      url,
      headers,
      payload: { quantity: 20 },
    })
    return [statusCode, body]
  }
  t.strictSame(await update(1), [200, '{"petId":1,"quantity":20,"status":"available"}'])
  t.strictSame(await update(2), [
    404,
    '{"code":"not_found","message":"No inventory entry exists for petId 2.","status":404}',
  ])
})

/** Resets a connection, and waits until it is closed. One whose end was sent already cannot be reset any more. */
async function reset({ socket, received }: RawConnection): Promise<void> {
  if (socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
  await received
}
