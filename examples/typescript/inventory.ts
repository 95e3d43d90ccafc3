// Sets the stock of one pet and follows the list, by the client in client.ts. Needs Node 20 or newer, and tsx or
// another way to run TypeScript.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… npx tsx inventory.ts PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.

import { InventoryClient, InventoryError, type InventoryItem } from './client.ts'

const inventory = new InventoryClient({
  baseUrl: process.env['INVENTORY_URL'] ?? 'http://127.0.0.1:3000/v1',
  apiKey: process.env['INVENTORY_KEY'] ?? '',
  timeoutMs: Number(process.env['INVENTORY_TIMEOUT_SECONDS'] ?? 10) * 1000,
})

function show({ petId, quantity, status }: InventoryItem): void {
  console.log(`${petId}: ${quantity} ${status}`)
}

async function run(petId: bigint, quantity: string): Promise<void> {
  let items = await inventory.list()
  items.forEach(show)
  const isChange = /^[+-]/.test(quantity)
  show(
    isChange
      ? await inventory.change(petId, (item) => item.quantity + Number(quantity))
      : await inventory.update(petId, Number(quantity)),
  )
  for (let round = 0; round < 2; round++) {
    const newest = await inventory.list()
    console.log(newest === items ? 'unchanged' : 'changed')
    items = newest
  }
}

const [petId = '', quantity = ''] = process.argv.slice(2)
if (/^-?\d+$/.test(petId) && /^[+-]?\d+$/.test(quantity)) {
  await run(BigInt(petId), quantity).catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error)
    if (error instanceof InventoryError && error.mayHaveBeenApplied)
      console.error('The update may have been applied.')
    process.exitCode = 1
  })
} else {
  console.error('usage: inventory.ts PET_ID QUANTITY')
  process.exitCode = 2
}
