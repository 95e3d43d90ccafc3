import type { Pool } from '../../database/pool.ts'
import { hasReason } from '../../database/statement-error.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { TABLE_STATE, tableState } from './table-state.ts'
import { arrayOf, statementTexts, type UpdatedRow, updateStatement } from './update-statements.ts'

/**
 * PostgreSQL settings for sessions that update. With the default costs, PostgreSQL scans a whole table of a thousand rows to find
 * ten of them, which takes twice as long as ten index lookups (PostgreSQL manual, section 19.7.2).
 */
export const updateSettings = { random_page_cost: '1.1' }

/** An entry with the version of its row, if that is known. */
export interface StoredEntry extends InventoryItem {
  readonly version?: string
}

const ENTRIES_OF_PETS = `SELECT ${ENTRY_FIELDS} FROM inventory AS entry WHERE entry.pet_id = ANY ($1::bigint[])`

/** The version is the transaction that wrote the row. For a view, which has no `xmin`, the name means the column of the outer query. */
const VERSIONED_ENTRIES = `SELECT entry.* FROM (VALUES ('')) AS view (xmin),
  LATERAL (${ENTRIES_OF_PETS.replace(' FROM', ', xmin::text AS version FROM')}) AS entry`

/** The texts of the statements of updates. */
export const updateTexts = {
  required: [...statementTexts.required, ENTRIES_OF_PETS, VERSIONED_ENTRIES, TABLE_STATE],
  optional: statementTexts.optional,
}

type UpdatedRows = Map<bigint, UpdatedRow>

export type UpdateRepository = ReturnType<typeof updateRepository>

/**
 * Creates what writes quantities and finds out why an update was not made. Every statement rejects with a StatementError if
 * it fails.
 *
 * @param probe a pool for a statement that no update waits for
 */
export function updateRepository(database: Pool, probe: Pool) {
  const table = tableState(probe)
  /** Whether the database supports statements that skip locked rows, for example with a rule on the table. */
  let canSkip = true
  return {
    /** Maximum connections for updates. */
    updateConnections: database.statistics().size,

    table,

    /**
     * Sets the quantities of different pets in one transaction, and returns their entries as stored, by petId. An update whose
     * condition is not met, or whose pet has no entry, is not made, and has no entry in the result. When the promise resolves,
     * every change is committed.
     *
     * @param skipsLocked whether to skip locked rows, if the database can; see `statementOf`. With Citus, it has no effect
     * @throws {StatementError} if the outcome is `unknown`, the changes may have been committed; with any other one, nothing has changed
     */
    async setQuantities(updates: readonly QuantityUpdate[], skipsLocked: boolean): Promise<UpdatedRows> {
      const { isDistributed, namesCallers } = table()
      const skips = skipsLocked && canSkip && !isDistributed
      const { statement, values } = updateStatement(updates, namesCallers, skips)
      try {
        const rows = await database.query<UpdatedRow>(statement, values)
        return new Map(rows.map((row) => [row.key, row]))
      } catch (error) {
        if (!skips || !hasReason(error, 'unsupported')) throw error
        canSkip = false
        return this.setQuantities(updates, false)
      }
    },

    /** Returns the entries of those pets that have one. With Citus, which has no triggers, no version is needed. */
    async entriesOf(petIds: readonly bigint[]): Promise<Map<bigint, StoredEntry>> {
      const text = table().isDistributed ? ENTRIES_OF_PETS : VERSIONED_ENTRIES
      const rows = await database.query<StoredEntry>(text, [arrayOf(petIds)])
      return new Map(rows.map((entry) => [entry.petId, entry]))
    },
  }
}
