// Sets the stock of one pet by calls whose types come from the service's description: openapi.d.ts, made by
// generate.ts. Needs openapi-fetch and lossless-json.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… npx tsx inventory.ts PET_ID QUANTITY
//
// What it leaves out, trying again and asking for changes alone, is in ../javascript.

import { isLosslessNumber, parse } from 'lossless-json'
import createClient from 'openapi-fetch'
import type { components, paths } from './openapi.d.ts'

type InventoryItem = components['schemas']['InventoryItem']

const client = createClient<paths>({
  baseUrl: process.env['INVENTORY_URL'] ?? 'http://127.0.0.1:3000/v1',
  headers: { authorization: `Bearer ${process.env['INVENTORY_KEY']}` },
  fetch: (request) => fetch(request, { signal: AbortSignal.timeout(10_000) }),
})

/**
 * Reads JSON with each petId as a bigint, which is what the types say that it is. openapi-fetch by itself reads with
 * JSON.parse, which rounds a petId above 2^53 to the id of another pet; `parseAs: 'text'` leaves the text to us.
 */
function read<T>(text: string): T {
  const value: unknown = parse(text, (name, value) => {
    if (!isLosslessNumber(value)) return value
    return name === 'petId' ? BigInt(value.value) : Number(value.value)
  })
  return value as T
}

function show({ petId, quantity, status }: InventoryItem): void {
  console.log(`${petId}: ${quantity} ${status}`)
}

const [petId = '', quantity] = process.argv.slice(2)

const list = await client.GET('/inventory', { parseAs: 'text' })
if (list.data !== undefined) read<InventoryItem[]>(list.data).forEach(show)
else console.error(`${list.error.code}: ${list.error.message}`)

const update = await client.PATCH('/inventory/{petId}', {
  params: { path: { petId: BigInt(petId) } },
  body: { quantity: Number(quantity) },
  parseAs: 'text',
})
if (update.data !== undefined) show(read<InventoryItem>(update.data))
else console.error(`${update.error.code}: ${update.error.message}`)

process.exitCode = (list.error ?? update.error) ? 1 : 0
