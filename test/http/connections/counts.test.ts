import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { until } from '../../support/eventually.ts'
import { openRaw, type RawConnection } from '../../support/raw.ts'

const list = `GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`
// Answered with 404, without the database.
const nothing = list.replace('/inventory', '/nothing')
const lastNothing = nothing.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')

/** A check of API keys that accepts each one, and counts. */
class KeyCheck {
  calls = 0

  readonly find = async (): Promise<{ name: string }> => {
    this.calls++
    return { name: 'tests' }
  }
}

t.test('each request is counted in flight or queued, and no longer, whichever way it ends', async (t) => {
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

  t.equal(least, 0, 'never less than none')
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})

/** Resets a connection, and waits until it is closed. One whose end was sent already cannot be reset any more. */
async function reset({ socket, received }: RawConnection): Promise<void> {
  if (socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
  await received
}
