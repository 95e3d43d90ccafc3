import type { InventoryItem } from '../inventory/entry/schemas.ts'

/** Sample entries, one of them with a petId that a JavaScript number cannot represent. */
export const sampleInventory: readonly InventoryItem[] = [
  { petId: 1n, quantity: 12, status: 'available' },
  { petId: 2n, quantity: 3, status: 'available' },
  { petId: 3n, quantity: 0, status: 'sold' },
  { petId: 4n, quantity: 1, status: 'pending' },
  { petId: 9007199254740993n, quantity: 7, status: 'available' },
]
