import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t from 'tap'
import { appTimeouts } from '../../../src/http/app.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { callerOf } from '../../support/http.ts'
import { portOf, startProgram } from '../../support/program.ts'
import { openRaw, parseResponse, sendRaw } from '../../support/raw.ts'

const host = 'Host: a\r\n'
const key = `Authorization: Bearer ${apiKey}\r\n`
const list = `GET /v1/inventory HTTP/1.1\r\n${host}${key}\r\n`
const patchHead = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${key}Content-Type: application/json\r\nContent-Length: 14\r\n\r\n`
const connectRequest = `CONNECT a:1 HTTP/1.1\r\n${host}\r\n`
const upgradeRequest = `GET / HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`

/** What a client has sent when it resets its connection. */
const stages: Record<string, string> = {
  nothing: '',
  CONNECT: connectRequest,
  'CONNECT and bytes behind it': `${connectRequest}${'x'.repeat(100_000)}`,
  Upgrade: upgradeRequest,
  'half a head': 'GET /v1/inventory HTTP/1.1\r\nHo',
  'a whole head': patchHead,
  'half a body': `${patchHead}{"quan`,
  'a whole request': list,
  'a request without a key': `GET /v1/inventory HTTP/1.1\r\n${host}\r\n`,
  'two requests': list + list,
  'a request and CONNECT': list + connectRequest,
  'a request and Upgrade': list + upgradeRequest,
  'a request and half a head': `${list}GET /v1/inv`,
  'an update and half an update': `${patchHead}{"quantity":1}${patchHead}{"q`,
  garbage: 'garbage\r\n\r\n',
  'a request and garbage': `${list}garbage\r\n\r\n`,
  'too large a head': `GET / HTTP/1.1\r\n${host}X: ${'x'.repeat(20_000)}\r\n\r\n`,
}
const RESETS_PER_STAGE = 60
const CLIENTS = 20

/** Sends bytes and resets the connection: at once, or when the first bytes of an answer have come. */
async function reset(port: number, bytes: string, awaitsAnswer: boolean): Promise<void> {
  const socket: Socket = connect({ host: '127.0.0.1', port })
  // The server may reset it first.
  socket.on('error', () => {})
  const closed = once(socket, 'close')
  await once(socket, 'connect')
  const answered = awaitsAnswer ? Promise.race([once(socket, 'data'), closed]) : undefined
  if (bytes !== '') await new Promise<void>((resolve) => socket.write(bytes, () => resolve()))
  await answered
  socket.resetAndDestroy()
  await closed
}

const isAnswered = (stage: string): boolean => !/^(nothing|half a head|a whole head|half a body)$/.test(stage)

t.test('the service lives on when clients reset their connections at every stage', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: apiKey, PORT: '0' },
  })
  const port = await portOf(server)
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` })
  for (const [stage, bytes] of Object.entries(stages)) {
    let left = RESETS_PER_STAGE
    const client = async (): Promise<void> => {
      while (left-- > 0) await reset(port, bytes, isAnswered(stage) && left % 2 === 0)
    }
    await Promise.all(Array.from({ length: CLIENTS }, client))
    t.equal((await send('GET', '/v1/inventory')).status, 200, `served after resets behind ${stage}`)
  }
  server.process.kill('SIGTERM')
  const { code, stderr } = await server.ended
  t.equal(code, 0)
  t.equal(stderr, '')
})

t.test('an answer of several megabytes and one to CONNECT behind it come in order', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 100000) n")
  const { port } = await startApp(t, database.url)
  const answers = (await sendRaw(port, list + list + connectRequest))
    .split(/(?=HTTP\/1\.1 \d)/)
    .map(parseResponse)
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 405],
  )
  t.equal(answers[1]?.body.length, Number(answers[1]?.headers.get('content-length')))
  t.equal(answers[2]?.headers.get('connection'), 'close')
})

t.test('a client that reads nothing of the responses before CONNECT is disconnected', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 100000) n")
  const { port, log } = await startApp(t, database.url, {
    timings: { app: { ...appTimeouts, stallMs: 500 } },
  })
  const { socket } = await openRaw(port)
  t.teardown(() => socket.destroy())
  socket.pause()
  // More than the system buffers.
  socket.write(list.repeat(20) + connectRequest)
  await eventually('the end of the connection', async () =>
    log.some(({ aborted }) => aborted === true) ? true : undefined,
  )
})

t.test('Upgrade is ignored, and the request is served', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const { socket, received } = await openRaw(port)
  socket.write(upgradeRequest.replace('GET /', 'GET /livez'))
  await once(socket, 'data')
  socket.end(upgradeRequest.replace('GET /', 'GET /livez').replace('Upgrade\r\n', 'close, Upgrade\r\n'))
  const answers = (await received).split(/(?=HTTP\/1\.1 )/).map(parseResponse)
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200],
  )
})

/** Requests that are refused before their body is read: at their start, and by the framework. */
const refusedEarly = {
  'without a key': [`PATCH /v1/inventory/1 HTTP/1.1\r\n${host}`, 401],
  'with an invalid path': [`PATCH /v1/%zz HTTP/1.1\r\n${host}${key}`, 400],
} as const

for (const [title, [head, status]] of Object.entries(refusedEarly)) {
  const upgrade = `${head}Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 14\r\n\r\n`

  t.test(`one ${title} and with Upgrade closes its connection, and says so`, async (t) => {
    const database = await testDatabase(t)
    const { port } = await startApp(t, database.url)
    const answer = parseResponse(await sendRaw(port, `${upgrade}{"quantity":5}`))
    t.equal(answer.status, status)
    t.equal(answer.headers.get('connection'), 'close')
  })

  t.test(`one ${title} and with Upgrade does not wait for its body, and is the last`, async (t) => {
    const database = await testDatabase(t)
    // Far longer than this test may take.
    const timings = { app: { ...appTimeouts, arrivalMs: 300_000 } }
    const { port } = await startApp(t, database.url, { timings })
    const { socket, received } = await openRaw(port)
    socket.write(upgrade)
    const answer = parseResponse(String(await once(socket, 'data')))
    t.equal(answer.status, status)
    t.equal(answer.headers.get('connection'), 'close')
    socket.end(`{"quantity":5}${list}`)
    t.equal((await received).match(/HTTP\/1\.1 /g)?.length, 1)
  })
}

t.test('a client with Upgrade that awaits 100 Continue gets an early response, and the end', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const answer = parseResponse(
    await sendRaw(
      port,
      `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: h2c\r\n` +
        'Expect: 100-continue\r\nContent-Length: 14\r\n\r\n',
    ),
  )
  t.equal(answer.status, 401)
  t.equal(answer.headers.get('connection'), 'close')
})

/** Updates that are refused before all of their body has arrived, on a connection that then closes. */
const refusedWhileSent = {
  'without a key': [host, 'Content-Length: 32000', 401],
  'with a large body': [`${host}${key}Content-Type: application/json\r\n`, 'Content-Length: 32000', 413],
  'with a large body in chunks': [
    `${host}${key}Content-Type: application/json\r\n`,
    'Transfer-Encoding: chunked\r\n\r\n2000\r\n',
    413,
  ],
} as const

for (const [title, [head, framing, status]] of Object.entries(refusedWhileSent)) {
  t.test(`a client that sends an update ${title} reads the response, and is not reset`, async (t) => {
    const database = await testDatabase(t)
    const { port } = await startApp(t, database.url)
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    let text = ''
    socket.on('data', (chunk) => (text += chunk))
    const errors: Error[] = []
    socket.on('error', (error) => errors.push(error))
    const closed = once(socket, 'close')
    const isChunked = framing.startsWith('Transfer')
    socket.write(`PATCH /v1/inventory/1 HTTP/1.1\r\n${head}Connection: close\r\n${framing}`)
    socket.write(isChunked ? 'x'.repeat(0x2000) : '\r\n\r\n')
    await once(socket, 'end')
    t.equal(parseResponse(text).status, status, 'the response does not wait for the body')
    socket.end(isChunked ? `\r\n2000\r\n${'x'.repeat(0x2000)}\r\n0\r\n\r\n` : Buffer.alloc(32_000))
    await closed
    t.strictSame(errors, [])
  })
}

t.test('the rest of a refused body is read only if it is small and its length is known', async (t) => {
  const database = await testDatabase(t)
  const { port } = await startApp(t, database.url)
  const head = `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}`
  const next = `GET /livez HTTP/1.1\r\n${host}Connection: close\r\n\r\n`
  const bytes = 1_000_000
  const cases: [title: string, request: string, statuses: string[]][] = [
    ['a small body', `${head}Content-Length: 60000\r\n\r\n${'x'.repeat(60_000)}`, ['401', '200']],
    ['a large body', `${head}Content-Length: ${bytes}\r\n\r\n${'x'.repeat(bytes)}`, ['401']],
    [
      'chunks of one byte',
      `${head}Transfer-Encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(bytes / 6)}0\r\n\r\n`,
      ['401'],
    ],
  ]
  for (const [title, request, statuses] of cases) {
    const answers = (await sendRaw(port, request + next)).split(/(?=HTTP\/1\.1 )/)
    t.strictSame(
      answers.map((answer) => answer.slice(9, 12)),
      statuses,
      title,
    )
    t.equal(
      parseResponse(answers[0] ?? '').headers.get('connection'),
      statuses.length > 1 ? 'keep-alive' : 'close',
    )
  }
})
