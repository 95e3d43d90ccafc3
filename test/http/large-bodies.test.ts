import { once } from 'node:events'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { until } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { usageOf } from '../support/process-usage.ts'
import { portOf, startProgram } from '../support/program.ts'
import { openRaw, parseResponse } from '../support/raw.ts'

const GIGABYTE = 1024 ** 3
const piece = Buffer.alloc(1024 ** 2, ' ')

/** Sends a head and as much of a gigabyte as the server takes; returns the answer and how many bytes went out. */
async function sendGigabyte(
  port: number,
  head: string,
  wrap: (piece: Buffer) => Buffer,
): Promise<{ answer: string; sent: number }> {
  const { socket, received } = await openRaw(port)
  const closed = received.then(() => false)
  socket.write(head)
  let sent = 0
  for (let isOpen = true; isOpen && !socket.destroyed && sent < GIGABYTE; sent += piece.length) {
    if (!socket.write(wrap(piece))) {
      isOpen = await Promise.race([
        closed,
        once(socket, 'drain').then(
          () => true,
          () => false,
        ),
      ])
    }
  }
  // Where the server has read all of it, its answer is there.
  await until('an answer', () => socket.bytesRead > 0 || socket.destroyed)
  socket.destroy()
  return { answer: await received, sent }
}

t.test('a body of a gigabyte is refused without being kept', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: apiKey, PORT: '0' },
  })
  const port = await portOf(server)
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` })
  for (let round = 0; round < 200; round++) await send('GET', '/v1/inventory')
  const before = await usageOf(server.process.pid)

  const json = 'Host: x\r\nContent-Type: application/json\r\n'
  const authorization = `Authorization: Bearer ${apiKey}\r\n`
  const length = `Content-Length: ${GIGABYTE}\r\n\r\n`
  const chunked = 'Transfer-Encoding: chunked\r\n\r\n'
  const chunk = (bytes: Buffer): Buffer =>
    Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')])
  const whole = (bytes: Buffer): Buffer => bytes
  const cases = [
    [
      'with a length',
      `PATCH /v1/inventory/1 HTTP/1.1\r\n${json}${authorization}${length}`,
      whole,
      413,
      'payload_too_large',
    ],
    [
      'in chunks',
      `PATCH /v1/inventory/1 HTTP/1.1\r\n${json}${authorization}${chunked}`,
      chunk,
      413,
      'payload_too_large',
    ],
    ['without a key', `PATCH /v1/inventory/1 HTTP/1.1\r\n${json}${length}`, whole, 401, 'unauthorized'],
  ] as const
  let most = 0
  for (const [title, head, wrap, status, code] of cases) {
    const { answer, sent } = await sendGigabyte(port, head, wrap)
    const { headers, ...response } = parseResponse(answer)
    isError(t, { ...response, contentType: headers.get('content-type') }, status, code)
    most = Math.max(most, (await usageOf(server.process.pid))?.memory ?? 0)
    t.comment(`${title}: ${sent / 1024 ** 2} MB were sent`)
  }
  if (before !== undefined) {
    t.ok(most - before.memory < 150, `memory grew from ${before.memory} to ${most} MB`)
  }
  t.equal((await send('GET', '/v1/inventory')).text, '[{"petId":1,"quantity":9,"status":"available"}]')
})
