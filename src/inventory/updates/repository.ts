import type { Database } from '../../database/database.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { arrayOf, statementTexts, TAG, type UpdatedRow, updateStatement } from './statements.ts'
import { TableState } from './table-state.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

/**
 * Writes quantities, and finds out what delays updates. Every method rejects with a DatabaseUnavailableError if the database
 * cannot serve.
 */
export interface UpdateRepository {
  /** Maximum connections for updates. */
  readonly updateConnections: number

  /** Returns the maximum updates in one statement. With 1, as many statements as there are connections are sent at once. */
  maxBatchSize(): number

  /**
   * Sets the quantities of different pets in one transaction, and returns their entries as stored, by petId. An update whose
   * condition is not met, or whose pet has no entry, is not made, and has no entry in the result. When the promise resolves,
   * every change is committed. If it rejects with an error for which `wasRefused` is true, nothing has changed; otherwise the
   * outcome is unknown.
   */
  setQuantities(updates: readonly QuantityUpdate[]): Promise<Map<bigint, InventoryItem>>

  /**
   * Returns the pets whose row is locked by another transaction now. Does not wait for row locks, but for a lock on the table,
   * like every statement.
   */
  lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Returns the tags, without quotes, of those pets that have an entry. */
  tagsOf(petIds: readonly bigint[]): Promise<Map<bigint, string>>
}

/**
 * PostgreSQL settings for sessions that update. With the default costs, PostgreSQL scans a whole table of a thousand rows to find
 * ten of them, which takes twice as long as ten index lookups (PostgreSQL manual, section 19.7.2).
 */
export const updateSettings = { random_page_cost: '1.1' }

const LOCKED = `SELECT pet_id::bigint AS "petId" FROM inventory
  WHERE pet_id = ANY ($1::bigint[]) AND pet_id NOT IN (
    SELECT pet_id FROM inventory WHERE pet_id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
  )`

const TAGS = `SELECT pet_id::bigint AS "petId", ${TAG} AS tag FROM inventory WHERE pet_id = ANY ($1::bigint[])`

/** The texts of the statements of updates. */
export const updateTexts: readonly string[] = [...statementTexts, LOCKED, TAGS]

/** Creates the repository on a pool. The pool `probe` is for a statement that no update waits for. */
export function updateRepository(database: Database, probe: Database): UpdateRepository {
  const table = new TableState(probe)
  table.refresh()
  return {
    updateConnections: database.statistics().size,

    maxBatchSize: () => (table.isDistributed ? 1 : MAX_BATCH_SIZE),

    async setQuantities(updates) {
      table.refresh()
      const { statement, values } = updateStatement(updates, table.namesCallers)
      const rows = await database.query<UpdatedRow>(statement, values)
      return new Map(rows.map(({ key, ...entry }) => [key, entry]))
    },

    async lockedAmong(petIds) {
      const rows = await database.query<{ petId: bigint }>(LOCKED, [arrayOf(petIds)])
      return new Set(rows.map(({ petId }) => petId))
    },

    async tagsOf(petIds) {
      const rows = await database.query<{ petId: bigint; tag: string }>(TAGS, [arrayOf(petIds)])
      return new Map(rows.map(({ petId, tag }) => [petId, tag]))
    },
  }
}
