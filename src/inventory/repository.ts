import type { Database } from '../database/pool.ts'
import type { InventoryItem } from './schemas.ts'

/** All access to the table `inventory`. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface InventoryRepository {
  /** Every entry in ascending petId, read in one statement and so from one snapshot. */
  list(): Promise<InventoryItem[]>

  /**
   * Sets one pet's quantity and returns the entry as it is from then on, or undefined where the pet has none.
   * It is committed when the promise resolves; repeating it does no harm, as the value is absolute.
   */
  setQuantity(petId: bigint, quantity: number): Promise<InventoryItem | undefined>

  /** Adds entries to a table that has none; a table with entries stays as it is. */
  addIfEmpty(items: readonly InventoryItem[]): Promise<void>
}

export function inventoryRepository(database: Database): InventoryRepository {
  return {
    list() {
      return database.query<InventoryItem>(
        'SELECT pet_id AS "petId", quantity, status FROM inventory ORDER BY pet_id',
      )
    },

    async setQuantity(petId, quantity) {
      const [item] = await database.query<InventoryItem>(
        'UPDATE inventory SET quantity = $2 WHERE pet_id = $1 RETURNING pet_id AS "petId", quantity, status',
        [petId, quantity],
      )
      return item
    },

    async addIfEmpty(items) {
      await database.query(
        `INSERT INTO inventory (pet_id, quantity, status)
         SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[])
         WHERE NOT EXISTS (SELECT FROM inventory)`,
        [
          items.map((item) => item.petId),
          items.map((item) => item.quantity),
          items.map((item) => item.status),
        ],
      )
    },
  }
}
