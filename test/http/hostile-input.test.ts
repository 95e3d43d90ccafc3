import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import { LosslessNumber, parse } from 'lossless-json'
import t from 'tap'
import { ApiError } from '../../src/contract/api-error.ts'
import { entityTags } from '../../src/contract/entity-tag.ts'
import { INT64_MAX, INT64_MIN } from '../../src/contract/int64.ts'
import { startService } from '../support/app.ts'
import { json } from '../support/http.ts'
import * as lines from '../support/messages.ts'
import { openRaw, responsesIn, sendRaw } from '../support/raw.ts'

/** Another one is tried by `SEED=…`; what fails says which seed and path made it fail. */
const seed = Number(process.env['SEED'] ?? 20_261_121)

/** How many times as many random requests to send. */
const FACTOR = Number(process.env['FUZZ_FACTOR'] ?? 1)

/** The statuses that the interface speaks of; 500 is for bugs of the service, which no input may find. */
const statuses = new Set([100, 200, 204, 304, 400, 401, 404, 405, 408, 412, 413, 414, 415, 431])

const { port, send, log, close, database } = await startService(t, ['1,9,available'])

const quantity = async () => String((await database.query('SELECT quantity FROM inventory'))[0]?.['quantity'])

/** Runs a property over input that is sent, and then checks that the service has taken no harm. */
async function holds<Value>(
  values: fc.Arbitrary<Value>,
  numRuns: number,
  predicate: (value: Value) => Promise<void>,
): Promise<void> {
  await fc.assert(fc.asyncProperty(values, predicate), { seed, numRuns: numRuns * FACTOR })
  t.equal((await send('GET', '/v1/inventory')).status, 200, `${numRuns} runs with seed ${seed}`)
  const errors = log.filter(({ level }) => Number(level) >= 50)
  t.strictSame(errors, [], 'no error was logged')
}

const escapeAll = (text: string): string => Buffer.from(text).toString('hex').replaceAll(/../g, '%$&')

t.test('any petId gets 404 if it is an int64 in plain decimal, else 400, and never another pet', async () => {
  const spellings = ['01', '+1', '1.0', '1e0', '0x1', '1_0', ' 1', '-0', '１', '١', 'NaN', "1'--", '1%00']
  const texts = fc.oneof(
    fc.bigInt(INT64_MIN, INT64_MAX).map(String),
    fc.bigInt(2n ** 63n, 2n ** 70n).map(String),
    fc.constantFrom(...spellings),
    fc.string({ minLength: 1, maxLength: 30 }),
    fc.double().map(String),
  )
  const petIds = texts.filter((text) => text !== '1')
  await holds(petIds, 200, async (petId) => {
    const { status } = await send('PATCH', `/v1/inventory/${escapeAll(petId)}`, json({ quantity: 5 }))
    const isInt64 = /^(0|-?[1-9]\d*)$/.test(petId) && INT64_MIN <= BigInt(petId) && BigInt(petId) <= INT64_MAX
    if (status !== (isInt64 ? 404 : 400)) throw new Error(`The status ${status} for ${petId}`)
  })
  t.equal(await quantity(), '9')
})

/** The quantity that a body of JSON has, exactly; undefined where it is not an integer. */
function sentQuantity(body: string): number | undefined {
  const value: unknown = parse(body)
  if (typeof value !== 'object' || value === null || !('quantity' in value)) return undefined
  const { quantity } = value
  return quantity instanceof LosslessNumber ? Number(quantity.value) : undefined
}

t.test('any JSON body stores the integer that it has, or nothing', async () => {
  const value = fc.oneof(
    fc.integer({ min: -5, max: 2 ** 31 + 5 }),
    fc.jsonValue({ maxDepth: 2 }),
    fc.double({ noDefaultInfinity: true, noNaN: true }),
  )
  const name = fc.constantFrom('quantity', 'Quantity', '__proto__', 'constructor', 'toString', 'x')
  const member = fc
    .tuple(name, value)
    .map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)
  const bodies = fc.oneof(
    fc.array(member, { maxLength: 4 }).map((members) => `{${members.join()}}`),
    value.map((value) => JSON.stringify(value)),
    value.map((value) => JSON.stringify({ quantity: value })),
    fc
      .stringMatching(/^-?[0-9]{1,12}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?$/)
      .map((number) => `{"quantity":${number}}`),
    fc.string({ unit: 'binary', maxLength: 60 }),
    fc.integer({ min: 1, max: 1300 }).map((depth) => `{"quantity":${'['.repeat(depth)}${']'.repeat(depth)}}`),
  )
  await holds(bodies, 200, async (body) => {
    const before = await quantity()
    const { status } = await send('PATCH', '/v1/inventory/1', json(body))
    const stored = await quantity()
    const isRight =
      status === 200
        ? Number(stored) === sentQuantity(body)
        : [400, 413].includes(status) && stored === before
    if (!isRight) throw new Error(`The status ${status}, and ${stored} after ${before}`)
  })
  t.equal(Object.keys(Object.prototype).length, 0, 'no prototype has got a member')
})

t.test('any bytes, header lines and pieces of requests get responses of the interface', async () => {
  const before = await quantity()
  const known =
    'accept-encoding if-match if-none-match content-type content-encoding content-length transfer-encoding te trailer expect ' +
    'connection upgrade host authorization x-request-id x-forwarded-for http2-settings __proto__'
  const name = fc.oneof(fc.stringMatching(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,20}$/), {
    weight: 3,
    arbitrary: fc.constantFrom(...known.split(' ')),
  })
  const value = fc.oneof(
    fc.stringMatching(/^[\x21-\x7e\x80-\xff]{0,40}$/),
    fc.string({ unit: 'binary', maxLength: 30 }),
    fc.constantFrom('*', 'gzip, br;q=0', 'identity;q=0, *;q=0', 'W/"x", "y"', 'application/json; charset=x'),
    fc.constantFrom('chunked', '100-continue', 'websocket', '0', '-1', '1e1', '18446744073709551616'),
  )
  const piece = fc.oneof(
    { weight: 3, arbitrary: fc.tuple(name, value).map(([name, value]) => `${name}: ${value}\r\n`) },
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
    fc.constantFrom('GET ', 'PATCH ', '/v1/inventory', '/v1/inventory/1', ' HTTP/1.1\r\n', ' HTTP/1.0\r\n'),
    fc.constantFrom('\r\n', '\n', '\r', '\0', ' ', '\t', 'X: y\r\n z\r\n', 'CONNECT x:1 HTTP/1.1\r\n'),
    fc.constantFrom(lines.host, lines.authorization, lines.close, lines.json, 'Content-Length: 14\r\n'),
    fc.constantFrom('e\r\n{"quantity":5}\r\n', '0\r\n\r\n', 'ffffffffffffffff\r\n', '-1\r\n'),
    fc.constantFrom('Connection: upgrade\r\nUpgrade: h2c\r\n', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  )
  const begin = (line: string): string =>
    `${line} HTTP/1.1\r\n${lines.host}${lines.authorization}${lines.close}`
  const start = fc.constantFrom('', begin('GET /v1/inventory'), begin('PATCH /v1/inventory/1'))
  const messages = fc.tuple(start, fc.array(piece, { minLength: 1, maxLength: 12 }))
  await holds(messages, 200, async ([start, pieces]) => {
    const { socket, received } = await openRaw(port)
    socket.write(Buffer.from(`${start}${pieces.join('')}${start && '\r\n'}`, 'latin1'))
    // It may be no whole request, so that no answer comes.
    await Promise.race([received, once(socket, 'data'), setTimeout(20)])
    socket.end()
    for (const { status, headers, text } of responsesIn(await received)) {
      if (!statuses.has(status)) throw new Error(`The status ${status}`)
      if (status < 400 || text === '') continue
      const error: Record<string, unknown> = JSON.parse(text.slice(0, Number(headers['content-length'])))
      if (Object.keys(error).sort().join() !== 'code,message,status' || error['status'] !== status)
        throw new Error(`Another shape: ${text}`)
    }
  })
  t.ok([before, '5'].includes(await quantity()))
})

t.test('a header full of spaces takes linear time', async (t) => {
  // With quadratic time, this would take hours.
  const spaces = ' '.repeat(1_000_000)
  for (const header of [`"a",${spaces}x`, `"a"${spaces}x`])
    t.throws(() => entityTags({ 'if-match': header }, 'If-Match'), ApiError)
  t.strictSame(entityTags({ 'if-match': `${spaces}"a"${spaces},${spaces}` }, 'If-Match'), ['a'])
})

t.test('a log line stays one line, whatever is sent', async (t) => {
  const forged = '{"level":60,"msg":"forged"}'
  const before = log.length
  const evil = fc
    .constantFrom('\n', '\r\n', '\u2028', '\u0085', '\x1b[2J', '\\n', '%0a', '%0d%0a', '"', '\\', '\u202e')
    .map((mark) => `a${mark}${forged}`)
  await holds(evil, 50, async (text) => {
    const headers = ['X-Request-Id: ', 'X-Forwarded-For: ', 'Authorization: Bearer ', 'User-Agent: ']
    const forging = headers.map((header) => `${header}${text}\r\n`).join('')
    await sendRaw(port, `GET /${text} HTTP/1.1\r\n${lines.host}${forging}${lines.close}\r\n`)
    await sendRaw(port, `GET /${escapeAll(text)} HTTP/1.1\r\n${lines.host}${lines.close}\r\n`)
  })
  await close()
  t.ok(log.length >= before + 100)
  t.notOk(log.some(({ msg, level }) => msg === 'forged' || level === 60))
})
