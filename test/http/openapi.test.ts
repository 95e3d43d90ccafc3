import { readFile } from 'node:fs/promises'
import { createConfig, lintFromString } from '@redocly/openapi-core'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import t from 'tap'
import { fixedApiKeys } from '../../src/api-keys/fixed-keys.ts'
import { errorCodes } from '../../src/contract/errors.ts'
import { apiKey, startApp, startService } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf } from '../support/http.ts'
import { parseResponse, sendRaw } from '../support/raw.ts'
import { startRelay } from '../support/relay.ts'

const source = await readFile('openapi.json', 'utf8')
const document: Record<string, unknown> = JSON.parse(source)
const ajv = new Ajv2020({ strict: false, validateSchema: false })
addFormats.default(ajv)
ajv.addSchema(document, 'openapi.json')

/** The member of a JSON document at a path of names; undefined where there is none. */
function at(document: unknown, ...names: string[]): unknown {
  let value = document
  for (const name of names) {
    value = typeof value === 'object' && value !== null ? new Map(Object.entries(value)).get(name) : undefined
  }
  return value
}

t.test('the description has both operations with the names and bounds of the interface', async (t) => {
  t.match(document['openapi'], /^3\.1\.\d$/)
  t.equal(at(document, 'info', 'version'), '1.0.0')
  t.strictSame(Object.keys(Object(document['paths'])), ['/inventory', '/inventory/{petId}'])
  t.strictSame(Object.keys(Object(at(document, 'paths', '/inventory'))), ['get'])
  t.strictSame(Object.keys(Object(at(document, 'paths', '/inventory/{petId}'))), ['patch'])
  const list = at(document, 'paths', '/inventory', 'get')
  const update = at(document, 'paths', '/inventory/{petId}', 'patch')
  t.equal(at(list, 'operationId'), 'listInventory')
  t.equal(at(list, 'x-stability'), undefined)
  t.equal(at(update, 'operationId'), 'updateInventory')
  t.equal(at(update, 'x-stability'), 'experimental')
  t.match(at(update, 'description'), /Experimental/)
  t.strictSame(at(document, 'components', 'securitySchemes', 'apiKey', 'scheme'), 'bearer')
  for (const operation of [list, update]) t.strictSame(at(operation, 'security'), [{ apiKey: [] }])
  t.match(at(update, 'parameters', '0'), {
    in: 'path',
    name: 'petId',
    required: true,
    schema: { type: 'integer', format: 'int64' },
  })
  const schemas = at(document, 'components', 'schemas')
  t.strictSame(Object.keys(Object(schemas)).sort(), [
    'Error',
    'InventoryItem',
    'InventoryUpdate',
    'PetStatus',
  ])
  const quantity = { type: 'integer', minimum: 0, maximum: 2147483647 }
  t.match(schemas, {
    InventoryItem: {
      required: ['petId', 'quantity', 'status'],
      properties: { petId: { type: 'integer', format: 'int64' }, quantity },
    },
    InventoryUpdate: { required: ['quantity'], properties: { quantity } },
    PetStatus: { type: 'string', enum: ['available', 'pending', 'sold'] },
    Error: { required: ['code', 'message', 'status'], properties: { code: { type: 'string' } } },
  })
  // A closed enum would make generated clients fail on a code that is added later.
  const code = at(schemas, 'Error', 'properties', 'code')
  t.equal(at(code, 'enum'), undefined)
  t.strictSame(at(code, 'x-extensible-enum'), errorCodes)
  for (const known of errorCodes) t.match(at(code, 'description'), known)
  t.match(at(list, 'parameters'), [
    { in: 'header', name: 'If-None-Match', required: false },
    { in: 'header', name: 'If-Match', required: false },
  ])
  t.strictSame(at(schemas, 'InventoryItem', 'properties', 'status'), {
    $ref: '#/components/schemas/PetStatus',
  })
  t.strictSame(at(update, 'requestBody'), {
    required: true,
    content: { 'application/json': { schema: { $ref: '#/components/schemas/InventoryUpdate' } } },
  })
  t.strictSame(document['servers'], [{ url: '/v1' }])
})

t.test('the service serves openapi.json', async (t) => {
  const { port } = await startService(t)
  const { status, headers, text } = await callerOf(port)('GET', '/openapi.json')
  t.equal(status, 200)
  t.equal(headers['content-type'], 'application/json; charset=utf-8')
  t.equal(headers['cache-control'], 'no-cache')
  t.equal(source, `${JSON.stringify(JSON.parse(text), null, 2)}\n`)
})

t.test('the description passes the recommended rules of a linter', async (t) => {
  const problems = await lintFromString({ source, config: await createConfig({ extends: ['recommended'] }) })
  t.strictSame(
    problems.map(({ ruleId, message }) => `${ruleId}: ${message}`),
    [],
  )
})

t.test('the entry, the list, the update and every error have an example', async (t) => {
  const schemas = at(document, 'components', 'schemas')
  for (const name of ['InventoryItem', 'InventoryUpdate']) {
    const example = at(schemas, name, 'example')
    t.ok(ajv.validate({ $ref: `openapi.json#/components/schemas/${name}` }, example), `example of ${name}`)
  }
  for (const [path, operations] of Object.entries(Object(document['paths']))) {
    for (const [method, operation] of Object.entries(Object(operations))) {
      for (const [status, response] of Object.entries(Object(at(operation, 'responses')))) {
        const title = `${method} ${path} ${status}`
        t.ok(at(response, 'headers', 'X-Request-Id'), `${title} has an X-Request-Id`)
        const media = at(response, 'content', 'application/json')
        if (media === undefined) continue
        const example = at(media, 'example')
        const pointer = [path, method, 'responses', status, 'content', 'application/json', 'schema']
          .map((name) => encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1')))
          .join('/')
        t.ok(ajv.validate({ $ref: `openapi.json#/paths/${pointer}` }, example), `${title} has an example`)
        if (/^[45]\d\d$/.test(status)) t.equal(at(example, 'status'), Number(status), title)
      }
    }
  }
})

t.test('every response of the routes is described, and no other', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['9007199254740993', 9, 'available'],
    ['2', 9, 'sold'],
  ])
  await database.query(
    `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 'a bug'::integer; END $$`,
  )
  await database.query(
    'CREATE TRIGGER fail BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id = 2) EXECUTE FUNCTION fail()',
  )
  const outage = await startRelay(t, database.url)
  const findApiKey = fixedApiKeys([{ name: 'tests', key: apiKey }])
  const { port } = await startApp(t, outage.url, {
    app: {
      findApiKey: (key) => (key === 'reader' ? { name: 'reader', isReadOnly: true } : findApiKey(key)),
    },
  })
  const seen = new Map<string, Set<string>>()
  const operations = {
    GET: { path: '/inventory', pointer: 'openapi.json#/paths/~1inventory/get/responses' },
    PATCH: {
      path: '/inventory/{petId}',
      pointer: 'openapi.json#/paths/~1inventory~1%7BpetId%7D/patch/responses',
    },
  } as const

  /** Sends a request by hand and holds the answer against the document. */
  const check = async (
    method: 'GET' | 'PATCH',
    expected: number,
    { id = '9007199254740993', headers = '', body }: { id?: string; headers?: string; body?: string } = {},
    common = `Host: x\r\nAuthorization: Bearer ${apiKey}\r\nConnection: close\r\n`,
  ): Promise<void> => {
    const target = method === 'GET' ? '/v1/inventory' : `/v1/inventory/${id}`
    const content =
      body === undefined
        ? ''
        : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`
    const bytes = `${method} ${target} HTTP/1.1\r\n${common}${headers || content}\r\n${body ?? ''}`
    const answer = parseResponse(await sendRaw(port, bytes))
    t.equal(answer.status, expected, `${method} ${target} → ${expected}`)
    const { path, pointer } = operations[method]
    const schema = at(document, 'paths', path, method.toLowerCase(), 'responses', String(answer.status))
    t.ok(schema, `${method} ${path} documents ${answer.status}`)
    seen.set(method, (seen.get(method) ?? new Set()).add(String(answer.status)))
    const isEncoded = /accept-encoding/i.test(headers)
    for (const header of Object.keys(Object(at(schema, 'headers')))) {
      const isExpected = header !== 'Content-Encoding' || isEncoded
      t.equal(answer.headers.has(header.toLowerCase()), isExpected, `${answer.status} with ${header}`)
    }
    if (answer.body === '' || isEncoded) return
    const validate = ajv.compile({ $ref: `${pointer}/${answer.status}/content/application~1json/schema` })
    t.ok(
      validate(JSON.parse(answer.body)),
      `${answer.body} fits its schema: ${ajv.errorsText(validate.errors)}`,
    )
    if (answer.status < 400) return
    const example = at(schema, 'content', 'application/json', 'example')
    t.equal(
      at(JSON.parse(answer.body), 'code'),
      at(example, 'code'),
      `${answer.status} has the code of its example`,
    )
  }

  const good = '{"quantity":5}'
  const large = `X: ${'x'.repeat(20_000)}\r\n`
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', good],
  ] as const) {
    const message = body === undefined ? {} : { body }
    await check(method, 200, message)
    await check(method, 401, message, 'Host: x\r\nConnection: close\r\n')
    await check(method, 400, message, `Authorization: Bearer ${apiKey}\r\nConnection: close\r\n`)
    await check(method, 431, { ...message, headers: large })
    outage.fail()
    await check(method, 503, message)
    await outage.restore()
  }
  await check('GET', 200, { headers: 'Accept-Encoding: gzip\r\n' })
  await check('GET', 304, { headers: 'If-None-Match: *\r\n' })
  await check('GET', 412, { headers: 'If-Match: "zzz"\r\n' })
  await check('PATCH', 400, { body: '{}' })
  await check(
    'PATCH',
    403,
    { body: good },
    'Host: x\r\nAuthorization: Bearer reader\r\nConnection: close\r\n',
  )
  await check('PATCH', 404, { id: '1', body: good })
  const conditional = `Content-Type: application/json\r\nContent-Length: ${good.length}\r\nIf-Match: "zzz"\r\n`
  await check('PATCH', 412, { headers: conditional, body: good })
  await check('PATCH', 413, { body: ' '.repeat(5000) })
  await check('PATCH', 414, { id: '1'.repeat(200), body: good })
  await check('PATCH', 415, { headers: 'Content-Type: text/plain\r\nContent-Length: 14\r\n', body: good })
  await check('PATCH', 500, { id: '2', body: good })

  // What takes 10 seconds (408) or a bug in a list (500) is not provoked again here; no known error is the default one.
  // Ranges, such as 4XX, are not used: generators make code of them that does not compile.
  for (const [method, unseen] of [
    ['GET', ['408', '500', 'default']],
    ['PATCH', ['408', 'default']],
  ] as const) {
    const { path } = operations[method]
    const documented = Object.keys(Object(at(document, 'paths', path, method.toLowerCase(), 'responses')))
    t.strictSame(
      [...(seen.get(method) ?? []), ...unseen].sort(),
      documented.sort(),
      `${method} documents what it answers`,
    )
  }
})
