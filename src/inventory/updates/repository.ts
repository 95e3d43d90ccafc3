import type { Database } from '../../database/database.ts'
import { hasCause } from '../../database/error-meaning.ts'
import { DatabaseUnavailableError, OutcomeUnknownError } from '../../database/errors.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { arrayOf, statementTexts, TAG, type UpdatedRow, updateStatement } from './statements.ts'
import { TABLE_STATE, TableState } from './table-state.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

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
export const updateTexts: readonly string[] = [...statementTexts, LOCKED, TAGS, TABLE_STATE]

export type UpdateRepository = ReturnType<typeof updateRepository>

/**
 * Creates what writes quantities and finds out what delays updates. Every method rejects with a DatabaseUnavailableError if the
 * database cannot serve.
 *
 * @param probe a pool for a statement that no update waits for
 */
export function updateRepository(database: Database, probe: Database) {
  const table = new TableState(probe)
  table.refresh()
  return {
    /** Maximum connections for updates. */
    updateConnections: database.statistics().size,

    /** Returns the maximum updates in one statement. With 1, as many statements as there are connections are sent at once. */
    maxBatchSize: (): number => (table.isDistributed ? 1 : MAX_BATCH_SIZE),

    /**
     * Sets the quantities of different pets in one transaction, and returns their entries as stored, by petId. An update whose
     * condition is not met, or whose pet has no entry, is not made, and has no entry in the result. When the promise resolves,
     * every change is committed.
     *
     * @throws {OutcomeUnknownError} if the changes may have been committed; after any other error, nothing has changed
     */
    async setQuantities(updates: readonly QuantityUpdate[]): Promise<Map<bigint, InventoryItem>> {
      table.refresh()
      const { statement, values } = updateStatement(updates, table.namesCallers)
      const rows = await database.query<UpdatedRow>(statement, values).catch((error: unknown) => {
        // An ERROR of Citus may report a lost connection to the server that commits.
        const isKnown = !(error instanceof DatabaseUnavailableError) || error.outcome !== 'unknown'
        throw isKnown && !(table.isDistributed && hasCause(error, 'failed', 'lost'))
          ? error
          : new OutcomeUnknownError(error)
      })
      return new Map(rows.map(({ key, ...entry }) => [key, entry]))
    },

    /**
     * Returns the pets whose row is locked by another transaction now. Does not wait for row locks, but for a lock on the table,
     * like every statement.
     */
    async lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>> {
      const rows = await database.query<{ petId: bigint }>(LOCKED, [arrayOf(petIds)])
      return new Set(rows.map(({ petId }) => petId))
    },

    /** Returns the tags, without quotes, of those pets that have an entry. */
    async tagsOf(petIds: readonly bigint[]): Promise<Map<bigint, string>> {
      const rows = await database.query<{ petId: bigint; tag: string }>(TAGS, [arrayOf(petIds)])
      return new Map(rows.map(({ petId, tag }) => [petId, tag]))
    },
  }
}
