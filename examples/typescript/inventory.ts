// Sets the stock of one pet and polls the list, with the client in client.ts. Needs tsx or another way to run TypeScript.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… npx tsx inventory.ts PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.

import { InventoryClient, InventoryError, type InventoryItem } from './client.ts'

const {
  INVENTORY_URL = 'http://127.0.0.1:3000/v1',
  INVENTORY_KEY = '',
  INVENTORY_TIMEOUT_SECONDS = 10,
} = process.env
const timeoutMs = Number(INVENTORY_TIMEOUT_SECONDS) * 1000
const inventory = new InventoryClient(INVENTORY_URL, INVENTORY_KEY, { timeoutMs })

function show({ petId, quantity, status }: InventoryItem): void {
  console.log(`${petId}: ${quantity} ${status}`)
}

/** Adds to the quantity of a pet by compare and set: no other writer's update is lost. */
async function add(petId: bigint, change: number): Promise<InventoryItem> {
  const entry = (await inventory.list()).find((item) => item.petId === petId)
  let tag = entry && `"${entry.quantity}-${entry.status}"`
  while (tag !== undefined) {
    try {
      return await inventory.update(petId, Number(/\d+/.exec(tag)) + change, tag)
    } catch (error) {
      if (!(error instanceof InventoryError) || error.code !== 'precondition_failed') throw error
      tag = /"\d+-[a-z]+"/.exec(error.response?.headers.get('etag') ?? '')?.[0]
    }
  }
  throw new Error(`There is no pet ${petId}.`)
}

function addOutcome(error: unknown): never {
  const isUnknown = error instanceof InventoryError && error.mayHaveBeenApplied
  const outcome = isUnknown ? 'The update may have been applied.' : 'Nothing was changed.'
  throw new Error(`${error instanceof Error ? error.message : error}\n${outcome}`, { cause: error })
}

async function run(petId: bigint, quantity: string): Promise<void> {
  let items = await inventory.list()
  items.forEach(show)
  const isChange = /^[+-]/.test(quantity)
  const updated = isChange ? add(petId, Number(quantity)) : inventory.update(petId, Number(quantity))
  show(await updated.catch(addOutcome))
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
    process.exitCode = 1
  })
} else {
  console.error('usage: inventory.ts PET_ID QUANTITY')
  process.exitCode = 2
}
