import type { Database } from '../../database/database.ts'
import { isNotSupported, mayBeUnsupportedByCitus } from '../../database/errors/sqlstate.ts'
import { columns, selectFields } from '../columns.ts'
import type { InventoryItem } from '../schemas.ts'
import { hasCitus, setDistributed } from './distributed.ts'
import type { QuantityUpdate, Written } from './quantity-update.ts'

/**
 * Writes quantities, and finds out what delays updates. Every method rejects with a DatabaseUnavailableError if the database
 * cannot serve.
 */
export interface UpdateRepository {
  /** Maximum connections for updates. */
  readonly updateConnections: number

  /**
   * Sets the quantities of different pets in one transaction, and returns their entries as stored. Conditions are checked by the
   * statement that writes. When the promise resolves, every change is committed. If it rejects with an error for which
   * `wasRefused` is true, nothing has changed; otherwise the outcome is unknown.
   *
   * @param asksForRules whether the result must say if the table has rules
   */
  setQuantities(updates: readonly QuantityUpdate[], asksForRules: boolean): Promise<Written>

  /**
   * Returns the pets whose row is locked by another transaction now; all of them if the server cannot tell. Does not wait for
   * row locks, but for a lock on the table, like every statement.
   */
  lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Returns the pets that have an entry. */
  existingAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Returns whether a commit of this role has waited for more than a second for a synchronous standby. */
  commitsWait(): Promise<boolean>
}

/**
 * PostgreSQL settings for sessions that update. With the default costs, PostgreSQL scans a whole table of a thousand rows to find
 * ten of them, which takes twice as long as ten index lookups (PostgreSQL manual, section 19.7.2).
 */
export const updateSettings = { random_page_cost: '1.1' }

interface WrittenRow extends InventoryItem {
  readonly key: bigint
  readonly hasRules: boolean
}

/** A partition or a child table may have triggers and constraints of its own. Looking for them would take too long. */
const hasRules = `(
  (SELECT relhastriggers OR relhasrules OR relrowsecurity OR relhassubclass FROM pg_class WHERE oid = 'inventory'::regclass)
  OR EXISTS (
    SELECT FROM pg_constraint
    WHERE conrelid = 'inventory'::regclass AND contype = 'c'
      AND conname NOT IN ('inventory_quantity_check', 'inventory_status_check')
  )
) AS "hasRules"`

const setOne = {
  name: 'inventory_set_quantity',
  text: `UPDATE inventory SET quantity = $2 WHERE pet_id = $1::bigint
         RETURNING $1::bigint AS key, ${selectFields()}, false AS "hasRules"`,
}

const setMany = {
  name: 'inventory_set_quantities',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[]) AS new (pet_id, quantity)
         WHERE inventory.pet_id = new.pet_id
         RETURNING new.pet_id AS key, ${selectFields('inventory')}, ${hasRules}`,
}

/**
 * Locks the rows, checks their conditions, and writes those that meet them. Without the lock, a row that another transaction has
 * just changed would look as if it did not exist. Tags are compared as text, so that `05-sold` does not match `5-sold`.
 */
const setManyIf = {
  name: 'inventory_set_quantities_if',
  text: `WITH locked AS MATERIALIZED (
           SELECT new.pet_id, inventory.quantity || '-' || inventory.status AS tag,
                  new.quantity AS new_quantity, new.any_of, new.none_of
           FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS new (pet_id, quantity, any_of, none_of)
           JOIN inventory ON inventory.pet_id = new.pet_id
           ORDER BY inventory.pet_id
           FOR NO KEY UPDATE OF inventory
         ), decided AS (
           SELECT pet_id, new_quantity, tag,
                  (any_of IS NULL OR tag = ANY (string_to_array(any_of, ',')))
                  AND (none_of IS NULL OR tag <> ALL (string_to_array(none_of, ','))) AS is_met
           FROM locked
         ), updated AS (
           UPDATE inventory SET quantity = new_quantity
           FROM decided
           WHERE inventory.pet_id = decided.pet_id AND is_met
           RETURNING decided.pet_id AS key, ${columns.map(({ column }) => `inventory.${column}`).join(', ')}
         )
         SELECT decided.pet_id AS key, CASE WHEN NOT is_met THEN tag END AS "unmetTag", ${selectFields('updated')},
                ${hasRules}
         FROM decided LEFT JOIN updated ON updated.key = decided.pet_id`,
}

/** Every field of the entry is null if nothing was written, and the tag if the condition is met. */
type DecidedRow = { readonly key: bigint; readonly unmetTag: string | null; readonly hasRules: boolean } & (
  | InventoryItem
  | { readonly petId: null }
)

function writtenBy(rows: readonly WrittenRow[]): Written {
  return {
    entries: new Map(rows.map(({ key, hasRules, ...entry }) => [key, entry])),
    unmet: new Map(),
    hasRules: rows.some(({ hasRules }) => hasRules),
  }
}

async function setUnconditionally(database: Database, updates: readonly QuantityUpdate[]): Promise<Written> {
  return writtenBy(
    await database.query<WrittenRow>(setMany, [
      arrayOf(updates.map(({ petId }) => petId)),
      arrayOf(updates.map(({ quantity }) => quantity)),
    ]),
  )
}

async function setConditionally(database: Database, updates: readonly QuantityUpdate[]): Promise<Written> {
  const rows = await database.query<DecidedRow>(setManyIf, [
    arrayOf(updates.map(({ petId }) => petId)),
    arrayOf(updates.map(({ quantity }) => quantity)),
    updates.map(({ condition }) => condition?.anyOf?.join() ?? null),
    updates.map(({ condition }) => condition?.noneOf?.join() ?? null),
  ])
  const entries = new Map<bigint, InventoryItem>()
  for (const row of rows) {
    if (row.petId === null) continue
    const { key, unmetTag, hasRules, ...entry } = row
    entries.set(key, entry)
  }
  return {
    entries,
    unmet: new Map(rows.flatMap(({ key, unmetTag }) => (unmetTag === null ? [] : [[key, unmetTag]]))),
    hasRules: rows.some(({ hasRules }) => hasRules),
  }
}

/** Creates the repository on a pool. */
export function updateRepository(database: Database): UpdateRepository {
  /** Whether Citus has rejected a statement because the table is distributed. */
  let isDistributed = false
  return {
    updateConnections: database.statistics().size,

    async setQuantities(updates, asksForRules) {
      const isConditional = updates.some(({ condition }) => condition !== undefined)
      const [only, ...others] = updates
      if (only !== undefined && others.length === 0 && !asksForRules && !isConditional)
        return writtenBy(await database.query<WrittenRow>(setOne, [only.petId, only.quantity]))
      if (!isDistributed) {
        try {
          return isConditional
            ? await setConditionally(database, updates)
            : await setUnconditionally(database, updates)
        } catch (error) {
          if (!mayBeUnsupportedByCitus(error) || !(await hasCitus(database))) throw error
          isDistributed = true
        }
      }
      return setDistributed(database, updates, asksForRules)
    },

    async lockedAmong(petIds) {
      const rows = await database
        .query<{ petId: bigint }>(
          `SELECT pet_id::bigint AS "petId" FROM inventory
           WHERE pet_id = ANY ($1::bigint[]) AND pet_id NOT IN (
             SELECT pet_id FROM inventory WHERE pet_id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
           )`,
          [petIds],
        )
        .catch((error: unknown) => {
          // Citus does not support row locks on several servers.
          if (isNotSupported(error)) return petIds.map((petId) => ({ petId }))
          throw error
        })
      return new Set(rows.map(({ petId }) => petId))
    },

    async existingAmong(petIds) {
      const rows = await database.query<{ petId: bigint }>(
        'SELECT pet_id::bigint AS "petId" FROM inventory WHERE pet_id = ANY ($1::bigint[])',
        [petIds],
      )
      return new Set(rows.map(({ petId }) => petId))
    },

    async commitsWait() {
      const [row] = await database.query<{ commitsWait: boolean }>(
        `SELECT EXISTS (
           SELECT FROM pg_stat_activity
           WHERE usename = current_user AND wait_event = 'SyncRep'
             AND query_start < clock_timestamp() - interval '1 second'
         ) AS "commitsWait"`,
      )
      return row?.commitsWait === true
    },
  }
}

/** Returns the text of a PostgreSQL array. The driver would quote each element, which is slower. */
function arrayOf(numbers: readonly (bigint | number)[]): string {
  return `{${numbers.join()}}`
}
