import { deepStrictEqual } from 'node:assert'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import {
  InventoryClient,
  InventoryConnectionError,
  InventoryError,
  readItems,
} from '../../examples/typescript/client.ts'
import { petStatuses } from '../../src/inventory/entry/schemas.ts'
import { apiKey, startService } from '../support/app.ts'
import { until } from '../support/eventually.ts'
import { inTurn, startFront } from './front.ts'

const PET = 9007199254740993n

t.test('the client reads every entry exactly', async () => {
  const members = {
    petId: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    quantity: fc.integer({ min: 0, max: 2 ** 31 - 1 }),
    status: fc.constantFrom(...petStatuses),
  }
  const item = fc.record(members, { noNullPrototype: true })
  const space = fc.constantFrom('', ' ', '\n', '\r\n\t')
  fc.assert(
    fc.property(fc.array(item), space, (items, space) => {
      const entries = items.map(
        ({ petId, ...others }) =>
          `{${space}"petId"${space}:${space}${petId}${space},${JSON.stringify(others).slice(1)}`,
      )
      deepStrictEqual(readItems(`[${entries.join(`${space},`)}]`), items)
    }),
  )
})

/** The service with two entries, and a client of it. */
async function connected(t: Test, options: { readonly tries?: number; readonly timeoutMs?: number } = {}) {
  const service = await startService(t, ['1,12,available', `${PET},7,pending`])
  const clientAt = (port: number, key = apiKey): InventoryClient =>
    new InventoryClient({ baseUrl: `http://127.0.0.1:${port}/v1/`, apiKey: key, ...options })
  return { service, clientAt, client: clientAt(service.port) }
}

t.test('errors have the status, the code and the id of the request', async (t) => {
  const { service, client, clientAt } = await connected(t)
  const refused = await client.update(6n, 1).catch((error: unknown) => error)
  t.ok(refused instanceof InventoryError)
  t.match(refused, { status: 404, code: 'not_found', message: /^not_found: No inventory entry/ })
  const { requestId } = Object(refused)
  const logged = (): boolean => service.log.some((line) => line['requestId'] === requestId)
  t.ok(typeof requestId === 'string' && logged(), 'the log of the service has that id')
  await t.rejects(clientAt(service.port, 'wrong').list(), { status: 401, code: 'unauthorized' })
  await t.rejects(client.update(1n, -1), { status: 400, code: 'invalid_request' })
  const changed = client.change(6n, () => 1)
  await t.rejects(changed, { status: 404, code: 'not_found' })
  // @ts-expect-error: a number may be a rounded one
  await t.rejects(client.update(1, 1), TypeError)
  const page = await startFront(t, service.port, () => '403 page')
  await t.rejects(clientAt(page.port).list(), { status: 403, code: undefined, requestId: undefined })
})

t.test('a lost connection, a timeout and an abort are distinct errors', async (t) => {
  const { service, clientAt } = await connected(t, { tries: 2, timeoutMs: 3000 })
  const losses = (['reset', 'stall', 'stall in the body', 'cut in the body'] as const).map(async (loss) => {
    const front = await startFront(t, service.port, () => loss)
    await t.rejects(clientAt(front.port).list(), InventoryConnectionError, loss)
    t.equal(front.requests.length, 2, `${loss}: two tries`)
  })
  await Promise.all(losses)
  const front = await startFront(t, service.port, () => 'stall')
  const abort = new AbortController()
  const listing = clientAt(front.port).list({ signal: abort.signal })
  abort.abort(new Error('enough'))
  await t.rejects(listing, /^enough$/)
  await t.rejects(clientAt(front.port).list({ signal: AbortSignal.abort(new Error('before')) }), /^before$/)
  const waiting = await startFront(t, service.port, () => '1 second')
  const second = new AbortController()
  const paused = clientAt(waiting.port).list({ signal: second.signal })
  const rejected = t.rejects(paused, /^while waiting$/)
  await until('the request to be put off', () => waiting.requests.length > 0)
  second.abort(new Error('while waiting'))
  await rejected
})

t.test('an update that was never sent is sent again, and reported as not applied', async (t) => {
  const { service, client } = await connected(t)
  const closed = await startFront(t, service.port, () => undefined)
  closed.stopListening()
  const refuse = { GET: 0, PATCH: 1 }
  const { fetch } = globalThis
  t.intercept(globalThis, 'fetch', {
    value: (url: string, options: { readonly method: 'GET' | 'PATCH' }) => {
      const isRefused = refuse[options.method]-- > 0
      return fetch(isRefused ? url.replace(`${service.port}`, `${closed.port}`) : url, options)
    },
  })
  t.match(await client.change(PET, ({ quantity }) => quantity + 1), { quantity: 8 })
  t.equal(refuse.PATCH, -1, 'it was refused once')
  refuse.PATCH = Number.POSITIVE_INFINITY
  const failed = { mayHaveBeenApplied: false, message: /Nothing was changed/ }
  await t.rejects(client.update(PET, 9), InventoryConnectionError)
  await t.rejects(client.update(PET, 9), failed)
  const changed = client.change(PET, () => 9)
  await t.rejects(changed, failed)
})

t.test('an update that any attempt may have made is reported so', async (t) => {
  const { service, clientAt } = await connected(t, { tries: 2 })
  for (const [first, second, mayHaveBeenApplied] of [
    ['reset', 'unchanged', true],
    ['502 page', '403 page', true],
    ['unchanged', 'unchanged', false],
    ['unchanged', 'reset', true],
    ['unchanged', '200 page', true],
  ] as const) {
    const front = await startFront(t, service.port, inTurn({ PATCH: [first, second] }))
    const updated = clientAt(front.port).update(PET, 9)
    await t.rejects(updated, { message: /./, mayHaveBeenApplied }, `${first}, ${second}`)
  }
})
