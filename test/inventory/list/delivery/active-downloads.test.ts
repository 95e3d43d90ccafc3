import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http'
import { setImmediate, setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ActiveDownloads } from '../../../../src/inventory/list/delivery/active-downloads.ts'
import type { Representation } from '../../../../src/inventory/list/serialized/serialized-list.ts'
import { startService } from '../../../support/app.ts'
import { until } from '../../../support/eventually.ts'
import { openUnread } from '../../../support/messages.ts'
import { listen } from '../../../support/ports.ts'

const makeList = (size: number): Representation => ({ buffers: [Buffer.alloc(size, 'x')], size })

/** A response that has begun, and the client's side of it. */
async function openResponse(t: Test): Promise<{ response: ServerResponse; client: IncomingMessage }> {
  const server = createServer()
  const outgoing = get({ host: '127.0.0.1', port: await listen(t, server), agent: false })
  const [, response]: ServerResponse[] = await once(server, 'request')
  if (response === undefined) throw new Error('There is no request')
  response.write('[')
  const [client] = await once(outgoing, 'response')
  client.resume()
  client.on('error', () => {})
  return { response, client }
}

t.test('a new list waits for downloads of older lists to end', async (t) => {
  const downloads = new ActiveDownloads({ budgetBytes: 100_000, timeoutMs: 60_000 })
  const { response, client } = await openResponse(t)
  downloads.add(makeList(200_000), response)
  let room = false
  void downloads.waitForMemory(makeList(300_000)).then(() => (room = true))
  await setTimeout(100)
  t.notOk(room)
  response.end(']')
  await once(client, 'end')
  await until('memory, before slow downloads are cut off', () => room, 30_000)
  t.ok(client.complete)
})

t.test('waits once, however many versions of the list clients download and do not read', async (t) => {
  const downloads = new ActiveDownloads({ budgetBytes: 250_000, timeoutMs: 100 })
  const open = async (): Promise<ServerResponse> => {
    const { response } = await openResponse(t)
    const list = makeList(100_000)
    // Two versions that share a buffer, which counts once.
    for (const version of [list, { ...list }]) downloads.add(version, response)
    return response
  }
  const slow = [await open(), await open(), await open()]
  const areCutOff = (): boolean[] => slow.map(({ req }) => req.socket.destroyed)
  await downloads.waitForMemory(undefined)
  t.strictSame(areCutOff(), [true, false, false], 'no more than needed')
  for (let version = 1; version <= 5; version++) {
    slow.push(await open())
    const next = downloads.waitForMemory(undefined).then(() => 'at once')
    t.equal(await Promise.race([next, setImmediate('later')]), 'at once', `version ${version}`)
    await next
    t.equal(areCutOff().filter((isCutOff) => !isCutOff).length, 2, 'the newest two stay')
  }
  await downloads.waitForMemory(undefined)
  t.equal(areCutOff().filter((isCutOff) => !isCutOff).length, 2, 'closed only for memory')
  for (const response of slow) response.end()
})

t.test('clients that read nothing of old lists are cut off when these take too much memory', async (t) => {
  const { database, port, send, log } = await startService(t)
  await database.query(
    "INSERT INTO inventory SELECT n + 1000000000000000000, 1000000000, 'available' FROM generate_series(1, 200000) n",
  )
  // Two lists take less memory than downloads may hold, three take more.
  for (let lists = 0; lists < 3; lists++) {
    await openUnread(t, port)
    // Some entries of each chunk.
    await database.query('UPDATE inventory SET quantity = quantity + 1 WHERE pet_id % 100 = 0')
  }
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  await until('a client to be cut off', () => log.some(({ aborted }) => aborted === true))
})
