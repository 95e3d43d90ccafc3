import t from 'tap'
import { InventoryClient, InventoryError } from '../../examples/typescript/client.ts'
import { apiKey, startService } from '../support/app.ts'
import { inTurn, startFront } from './front.ts'

const PET = 9007199254740993n
const SMALLEST = -(2n ** 63n)

const service = await startService(t, ['1,12,available', `${PET},7,pending`, `${SMALLEST},0,sold`])
const clientAt = (port: number, key = apiKey): InventoryClient =>
  new InventoryClient(`http://127.0.0.1:${port}/v1`, key, { attempts: 2, timeoutMs: 60_000 })
const client = clientAt(service.port)

t.test('the client reads ids exactly, and no list that has not changed', async (t) => {
  const items = await client.list()
  t.strictSame(items, [
    { petId: SMALLEST, quantity: 0, status: 'sold' },
    { petId: 1n, quantity: 12, status: 'available' },
    { petId: PET, quantity: 7, status: 'pending' },
  ])
  t.equal(await client.list(), items)
  t.strictSame(await client.update(PET, 8), { petId: PET, quantity: 8, status: 'pending' })
  t.match(await client.list(), [{}, {}, { petId: PET, quantity: 8 }])
})

t.test('errors have the code and the response', async (t) => {
  const failure = await client.update(6n, 1).catch((error: unknown) => error)
  t.ok(failure instanceof InventoryError)
  t.match(failure, {
    code: 'not_found',
    message: /^not_found: No inventory entry/,
    response: { status: 404 },
  })
  await t.rejects(clientAt(service.port, 'wrong').list(), { code: 'unauthorized' })
  await t.rejects(client.update(1n, -1), { code: 'invalid_request' })
  const conflict = await client.update(1n, 13, '"11-available"').catch((error: unknown) => error)
  t.match(conflict, { code: 'precondition_failed', mayHaveBeenApplied: false })
  t.equal(Object(conflict).response.headers.get('etag'), '"12-available"')
  t.match(await client.update(1n, 13, '"12-available"'), { quantity: 13 })
  const page = await startFront(t, service.port, () => '403 page')
  await t.rejects(clientAt(page.port).list(), { code: undefined, response: { status: 403 } })
})

t.test('an update that any attempt may have made is reported so', async (t) => {
  const closed = await startFront(t, service.port, () => undefined)
  closed.stopListening()
  const unsent = { message: /ECONNREFUSED/, response: undefined, mayHaveBeenApplied: false }
  await t.rejects(clientAt(closed.port).update(PET, 9), unsent)
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
