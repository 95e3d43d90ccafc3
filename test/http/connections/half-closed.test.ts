import { once } from 'node:events'
import t from 'tap'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { openRaw, parseResponse } from '../../support/raw.ts'

const host = 'Host: inventory.test\r\n'
const common = `${host}Authorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`
const list = `GET /v1/inventory HTTP/1.1\r\n${common}\r\n`

function update(quantity: number, version = '1.1'): string {
  const body = JSON.stringify({ quantity })
  return `PATCH /v1/inventory/1 HTTP/${version}\r\n${common}Content-Length: ${body.length}\r\n\r\n${body}`
}

function answersIn(text: string): ReturnType<typeof parseResponse>[] {
  return text.split(/(?=HTTP\/1\.1 \d)/).map(parseResponse)
}

t.test('a client that closes its side behind its requests gets every answer, then the end', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const { port } = await startApp(t, database.url)
  const cases: [title: string, bytes: string, statuses: number[]][] = [
    ['an update', update(1), [200]],
    ['an update over HTTP/1.0', update(2, '1.0'), [200]],
    ['a list', list, [200]],
    ['several requests', `${update(3)}${list}${update(4)}`, [200, 200, 200]],
    ['no key', `GET /v1/inventory HTTP/1.1\r\n${host}\r\n`, [401]],
    ['an unknown path', `GET /nothing HTTP/1.1\r\n${host}\r\n`, [404]],
    ['an invalid body', update(-1), [400]],
    ['a request with an error before another one', `${update(-1)}${update(5)}`, [400, 200]],
    ['nothing', '', []],
  ]
  for (const [title, bytes, statuses] of cases) {
    const { socket, received } = await openRaw(port)
    socket.end(bytes)
    const text = await received
    t.strictSame(text === '' ? [] : answersIn(text).map(({ status }) => status), statuses, title)
  }
})

t.test('a client that closes its side while its answer is under way gets all of it', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 100000) n")
  const { port, send } = await startApp(t, database.url)

  const release = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 1')
  const waiting = await openRaw(port)
  waiting.socket.end(update(7))
  t.equal((await send('GET', '/livez')).status, 200)
  await release()
  const [answer] = answersIn(await waiting.received)
  t.equal(answer?.body, '{"petId":1,"quantity":7,"status":"sold"}')
  t.equal(answer?.headers.get('connection'), 'close')

  const { text } = await send('GET', '/v1/inventory')
  const reading = await openRaw(port)
  reading.socket.write(list)
  await once(reading.socket, 'data')
  reading.socket.end()
  const body = (await reading.received).split('\r\n\r\n').slice(1).join('\r\n\r\n')
  t.ok(body.includes(text.slice(-1000)), 'the end of the list has arrived')
})
