import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import { LosslessNumber, parse } from 'lossless-json'
import t, { type Test } from 'tap'
import { INT64_MAX, INT64_MIN } from '../../../src/contract/int64.ts'
import { apiKey, startApp, type TestApp } from '../../support/app.ts'
import { addEntries, type TestDatabase, testDatabase } from '../../support/database.ts'
import { openRaw, parseResponse, sendRaw } from '../../support/raw.ts'

/** Another one is tried by `SEED=…`; what fails says which seed and path made it fail. */
const seed = Number(process.env['SEED'] ?? 20_261_121)

const host = 'Host: inventory.test\r\n'
const authorization = `Authorization: Bearer ${apiKey}\r\n`
const close = 'Connection: close\r\n'
const json = 'Content-Type: application/json\r\n'

/** The statuses that the interface speaks of; 500 is for bugs of the service, which no input may find. */
const errors = new Set([400, 401, 404, 405, 408, 413, 414, 415, 431])

async function setUp(t: Test): Promise<{ app: TestApp; database: TestDatabase }> {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  return { app: await startApp(t, database.url), database }
}

/** How many times as many random requests to send. */
const FACTOR = Number(process.env['FUZZ_FACTOR'] ?? 1)

/** Runs a property over bytes that are sent, and then checks that the service has taken no harm. */
async function holds<Value>(
  t: Test,
  app: TestApp,
  values: fc.Arbitrary<Value>,
  numRuns: number,
  predicate: (value: Value) => Promise<void>,
): Promise<void> {
  await fc.assert(fc.asyncProperty(values, predicate), { seed, numRuns: numRuns * FACTOR })
  t.equal((await app.send('GET', '/v1/inventory')).status, 200, `${numRuns} runs with seed ${seed}`)
  const errorLines = app.log.filter(({ level }) => Number(level) >= 50)
  t.strictSame(errorLines, [], 'no error was logged')
}

/** Throws unless the text is a row of responses, each with a status of the interface, and each error of its shape. */
function checkAnswers(text: string): number[] {
  const statuses: number[] = []
  let rest = text
  while (rest !== '') {
    const { status, headers, body } = parseResponse(rest)
    if (/^HTTP\/1\.1 100 Continue\r\n\r\n/.test(rest)) {
      rest = rest.slice('HTTP/1.1 100 Continue\r\n\r\n'.length)
      continue
    }
    const length = Number(headers.get('content-length') ?? 0)
    statuses.push(status)
    if (status >= 400) {
      if (!errors.has(status)) throw new Error(`The status ${status}: ${rest}`)
      if (body !== '') {
        const error: Record<string, unknown> = JSON.parse(body.slice(0, length))
        if (Object.keys(error).sort().join() !== 'code,message,status' || error['status'] !== status) {
          throw new Error(`Another shape: ${body}`)
        }
      }
    } else if (![200, 204, 304].includes(status)) throw new Error(`The status ${status}: ${rest}`)
    rest = body.slice(length)
  }
  return statuses
}

const token = fc.stringMatching(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,20}$/)
const visible = fc.stringMatching(/^[\x21-\x7e\x80-\xff]{0,40}$/)

t.test(
  'any petId: 404 for an int64 in plain decimal, else an error of the path, never another pet',
  async (t) => {
    const { app, database } = await setUp(t)
    const petId = fc.oneof(
      fc.bigInt(INT64_MIN, INT64_MAX).map(String),
      fc.bigInt(2n ** 63n, 2n ** 70n).map(String),
      fc.constantFrom(
        '01',
        '+1',
        '1.0',
        '1e0',
        '0x1',
        '1_0',
        ' 1',
        '1 ',
        '-0',
        '１',
        '١',
        'NaN',
        'Infinity',
        "1'--",
        '1;',
        '1%00',
      ),
      fc.string({ minLength: 1, maxLength: 30 }),
      fc.double().map(String),
    )
    await holds(
      t,
      app,
      petId.filter((text) => text !== '1'),
      500,
      async (petId) => {
        const { status } = await app.send('PATCH', `/v1/inventory/${escapeAll(petId)}`, {
          headers: { 'content-type': 'application/json' },
          body: '{"quantity":5}',
        })
        const isInt64 =
          /^(0|-?[1-9]\d*)$/.test(petId) && INT64_MIN <= BigInt(petId) && BigInt(petId) <= INT64_MAX
        if (status !== (isInt64 ? 404 : 400)) throw new Error(`The status ${status} for ${petId}`)
      },
    )
    t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '9' }])
  },
)

t.test('any JSON body stores the integer that it has, or nothing', async (t) => {
  const { app, database } = await setUp(t)
  const value = fc.oneof(
    fc.integer({ min: -5, max: 2 ** 31 + 5 }),
    fc.jsonValue({ maxDepth: 2 }),
    fc.double({ noDefaultInfinity: true, noNaN: true }),
  )
  const members = fc.array(
    fc.tuple(
      fc.constantFrom('quantity', 'Quantity', '__proto__', 'constructor', 'prototype', 'toString', 'x'),
      value,
    ),
    { maxLength: 4 },
  )
  const text = fc.oneof(
    members.map(
      (pairs) =>
        `{${pairs.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(',')}}`,
    ),
    value.map((value) => JSON.stringify(value)),
    value.map((value) => JSON.stringify({ quantity: value, __proto__: undefined })),
    fc
      .stringMatching(/^-?[0-9]{1,12}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?$/)
      .map((number) => `{"quantity":${number}}`),
    fc.string({ maxLength: 60 }),
    fc.string({ unit: 'binary', maxLength: 60 }),
    fc.integer({ min: 1, max: 1300 }).map((depth) => `{"quantity":${'['.repeat(depth)}${']'.repeat(depth)}}`),
  )
  await holds(t, app, text, 200, async (body) => {
    const [before] = await database.query('SELECT quantity FROM inventory')
    const answer = await app.send('PATCH', '/v1/inventory/1', {
      headers: { 'content-type': 'application/json' },
      body,
    })
    const [after] = await database.query('SELECT quantity FROM inventory')
    const stored = after?.['quantity']
    if (answer.status === 200) {
      if (Number(stored) !== sentQuantity(body)) throw new Error(`${stored} was stored`)
    } else if (![400, 413].includes(answer.status) || stored !== before?.['quantity']) {
      throw new Error(`The status ${answer.status}, and ${stored} after ${before?.['quantity']}`)
    }
  })
  t.equal(Object.keys(Object.prototype).length, 0, 'no prototype has got a member')
  t.equal(new Map(Object.entries({})).size, 0)
})

t.test('any headers get a response', async (t) => {
  const { app } = await setUp(t)
  const name = fc.oneof(
    token,
    fc.constantFrom(
      'accept-encoding',
      'if-none-match',
      'content-type',
      'content-length',
      'transfer-encoding',
      'expect',
      'connection',
      'upgrade',
      'x-request-id',
      'x-forwarded-for',
      'authorization',
      'host',
      'te',
      'trailer',
      'range',
      'cookie',
      'content-encoding',
      'keep-alive',
      'http2-settings',
      'x-http-method-override',
      'date',
      '__proto__',
    ),
  )
  const value = fc.oneof(
    visible,
    fc.string({ unit: 'binary', maxLength: 30 }),
    fc.constantFrom(
      '*',
      'gzip, br;q=0',
      'identity;q=0, *;q=0',
      'chunked',
      '100-continue',
      'websocket',
      'h2c',
      '0',
      '-1',
      '1e1',
      '18446744073709551616',
      'application/json; charset=utf-16',
      'W/"x", "y"',
      '{"level":60}',
    ),
  )
  const headers = fc.array(fc.tuple(name, value), { maxLength: 8 })
  const requests = fc.tuple(fc.constantFrom('GET', 'PATCH'), headers)
  await holds(t, app, requests, 100, async ([method, headers]) => {
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    checkAnswers(
      await sendAndClose(
        app.port,
        Buffer.from(`${method} /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${close}${lines}\r\n`),
      ),
    )
  })
})

t.test('any bytes, and pieces of requests in any order, leave the service running', async (t) => {
  const { app, database } = await setUp(t)
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc
      .constantFrom(
        'GET ',
        'PATCH ',
        '/v1/inventory',
        '/v1/inventory/1',
        ' HTTP/1.1\r\n',
        ' HTTP/1.0\r\n',
        '\r\n',
        '\n',
        '\r',
        '\0',
        ' ',
        '\t',
        host,
        authorization,
        close,
        json,
        'Content-Length: 14\r\n',
        'Content-Length: 0\r\n',
        'Transfer-Encoding: chunked\r\n',
        'e\r\n{"quantity":5}\r\n',
        '0\r\n\r\n',
        'X: y\r\n z\r\n',
        'Expect: 100-continue\r\n',
        'Connection: upgrade\r\nUpgrade: h2c\r\n',
        'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
        'ffffffffffffffff\r\n',
        '-1\r\n',
        'CONNECT x:1 HTTP/1.1\r\n',
      )
      .map((text) => Buffer.from(text, 'latin1')),
  )
  await holds(t, app, fc.array(piece, { minLength: 1, maxLength: 12 }), 100, async (pieces) => {
    checkAnswers(await sendAndClose(app.port, Buffer.concat(pieces)))
  })
  t.ok(['5', '9'].includes(String((await database.query('SELECT quantity FROM inventory'))[0]?.['quantity'])))
})

t.test('a log line stays one line, whatever is sent', async (t) => {
  const database = await testDatabase(t)
  const app = await startApp(t, database.url)
  const forged = '{"level":60,"msg":"forged"}'
  const evil = fc
    .constantFrom('\n', '\r\n', '\u2028', '\u0085', '\x1b[2J', '\\n', '%0a', '%0d%0a', '"', '\\', '\u202e')
    .map((mark) => `a${mark}${forged}`)
  await holds(t, app, evil, 50, async (text) => {
    const bytes = `GET /${text} HTTP/1.1\r\n${host}X-Request-Id: ${text}\r\nX-Forwarded-For: ${text}\r\nAuthorization: Bearer ${text}\r\nUser-Agent: ${text}\r\n${close}\r\n`
    await sendRaw(app.port, bytes)
    await sendRaw(app.port, `GET /${escapeAll(text)} HTTP/1.1\r\n${host}${close}\r\n`)
  })
  await app.close()
  t.ok(app.log.length >= 100)
  t.notOk(app.log.some(({ msg, level }) => msg === 'forged' || level === 60))
})

/** Sends bytes that may or may not be a whole request, and closes this side when no answer comes. */
async function sendAndClose(port: number, bytes: Buffer): Promise<string> {
  const { socket, received } = await openRaw(port)
  socket.write(bytes)
  await Promise.race([received, once(socket, 'data'), setTimeout(20)])
  socket.end()
  return received
}

function escapeAll(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
}

/** The quantity that a body of JSON has, exactly; undefined where it is not an integer. */
function sentQuantity(body: string): number | undefined {
  const value: unknown = parse(body)
  if (typeof value !== 'object' || value === null || !('quantity' in value)) return undefined
  const { quantity } = value
  return quantity instanceof LosslessNumber ? Number(quantity.value) : undefined
}
