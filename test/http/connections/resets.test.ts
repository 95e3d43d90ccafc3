import { once } from 'node:events'
import t from 'tap'
import { startService } from '../../support/app.ts'
import { authorization, host, json, listRequest, updateRequest } from '../../support/messages.ts'
import { openRaw, parseResponse, responsesIn, sendRaw, statusesIn } from '../../support/raw.ts'

const list = listRequest()
const patch = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}`
const connectRequest = `CONNECT a:1 HTTP/1.1\r\n${host}\r\n`
const upgrade = 'Connection: Upgrade\r\nUpgrade: h2c\r\n'
const upgradeRequest = `GET /livez HTTP/1.1\r\n${host}${upgrade}\r\n`

/** What a client has sent when it resets its connection: first what is not answered yet. */
const unanswered: Record<string, string> = {
  nothing: '',
  'half a head': 'GET /v1/inventory HTTP/1.1\r\nHo',
  'a whole head': updateRequest(1).slice(0, -14),
  'half a body': updateRequest(1).slice(0, -7),
}
const answered: Record<string, string> = {
  CONNECT: connectRequest,
  'CONNECT and bytes behind it': `${connectRequest}${'x'.repeat(100_000)}`,
  Upgrade: upgradeRequest,
  'a whole request': list,
  'a request without a key': list.replace(authorization, ''),
  'two requests': list + list,
  'a request and CONNECT': list + connectRequest,
  'a request and Upgrade': list + upgradeRequest,
  'a request and half a head': `${list}GET /v1/inv`,
  'an update and half an update': `${updateRequest(1)}${updateRequest(1).slice(0, -7)}`,
  garbage: 'garbage\r\n\r\n',
  'a request and garbage': `${list}garbage\r\n\r\n`,
  'too large a head': `GET / HTTP/1.1\r\n${host}X: ${'x'.repeat(20_000)}\r\n\r\n`,
}
const RESETS_PER_STAGE = 30

/** Sends bytes and resets the connection: at once, or when the first bytes of an answer have come. */
async function reset(port: number, bytes: string, awaitsAnswer: boolean): Promise<void> {
  const { socket, received } = await openRaw(port)
  const answer = awaitsAnswer ? Promise.race([once(socket, 'data'), received]) : undefined
  if (bytes !== '') await new Promise<void>((resolve) => socket.write(bytes, () => resolve()))
  await answer
  socket.resetAndDestroy()
  await received
}

t.test('the service lives on when clients reset their connections at every stage', async (t) => {
  const { port, send, log, close } = await startService(t, ['1,9,available'])
  for (const [stage, bytes] of Object.entries({ ...unanswered, ...answered })) {
    await Promise.all(
      Array.from({ length: RESETS_PER_STAGE }, (_, index) =>
        reset(port, bytes, stage in answered && index % 2 === 0),
      ),
    )
    t.equal((await send('GET', '/v1/inventory')).status, 200, `served after resets behind ${stage}`)
  }
  await close()
  const errors = log.filter(({ level }) => Number(level) >= 50)
  t.strictSame(errors, [])
})

t.test('the responses to a burst come whole, to a client that reads them', async (t) => {
  const { port, database } = await startService(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 100000) n")
  const answers = responsesIn(await sendRaw(port, list.repeat(20)))
  t.ok(answers.length > 1)
  for (const { status, headers, text } of answers)
    t.strictSame([status, text.length], [200, Number(headers['content-length'])])
})

t.test('Upgrade is ignored, and the request is served', async (t) => {
  const { port } = await startService(t)
  const { socket, received } = await openRaw(port)
  socket.write(upgradeRequest)
  await once(socket, 'data')
  socket.end(upgradeRequest.replace('Connection: ', 'Connection: close, '))
  t.strictSame(statusesIn(await received), [200, 200])
})

/** Updates that are refused before all of their body has arrived, on a connection that then closes. */
const refusedWhileSent = {
  'without a key': [patch, 'Content-Length: 32000', 401],
  'with a large body': [`${patch}${authorization}${json}`, 'Content-Length: 32000', 413],
  'with a large body in chunks': [
    `${patch}${authorization}${json}`,
    'Transfer-Encoding: chunked\r\n\r\n2000\r\n',
    413,
  ],
} as const

t.test('a client that sends a refused update reads the response, and is not reset', async (t) => {
  const { port } = await startService(t)
  for (const [title, [head, framing, status]] of Object.entries(refusedWhileSent)) {
    const { socket, received } = await openRaw(port, { allowHalfOpen: true })
    const errors: Error[] = []
    socket.on('error', (error) => errors.push(error))
    const isChunked = framing.startsWith('Transfer')
    socket.write(`${head}${framing}`)
    socket.write(isChunked ? 'x'.repeat(0x2000) : '\r\n\r\n')
    // The response does not wait for the body.
    await once(socket, 'end')
    socket.end(isChunked ? `\r\n2000\r\n${'x'.repeat(0x2000)}\r\n0\r\n\r\n` : Buffer.alloc(32_000))
    t.match(parseResponse(await received), { status, headers: { connection: 'close' } }, title)
    t.strictSame(errors, [], title)
  }
})

t.test('a body of a gigabyte is refused after a small part of it', async (t) => {
  const { port, send } = await startService(t)
  const gigabyte = 1024 ** 3
  const piece = 'x'.repeat(1024 ** 2)
  const chunk = `${piece.length.toString(16)}\r\n${piece}\r\n`
  for (const [head, part, status] of [
    [`${patch}Content-Length: ${gigabyte}\r\n\r\n`, piece, 401],
    [`${patch}${authorization}${json}Content-Length: ${gigabyte}\r\n\r\n`, piece, 413],
    [`${patch}${authorization}${json}Transfer-Encoding: chunked\r\n\r\n`, chunk, 413],
  ] as const) {
    const { socket, received } = await openRaw(port)
    socket.write(head)
    let sent = 0
    for (; socket.writable && sent < gigabyte; sent += part.length) {
      if (!socket.write(part)) await Promise.race([received, once(socket, 'drain').catch(() => {})])
    }
    t.ok(sent < 50 * piece.length, `${sent} bytes were sent`)
    t.equal(parseResponse(await received).status, status)
  }
  t.equal((await send('GET', '/v1/inventory')).status, 200)
})
