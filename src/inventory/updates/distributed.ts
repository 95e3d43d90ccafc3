import type { Database } from '../../database/database.ts'
import { DatabaseUnavailableError, WorkerLostError } from '../../database/errors/errors.ts'
import { isRemoteLoss } from '../../database/errors/failures.ts'
import { HAS_CITUS } from '../../database/server/server-status.ts'
import { selectFields } from '../columns.ts'
import type { Condition } from '../condition.ts'
import type { InventoryItem } from '../schemas.ts'
import type { QuantityUpdate, Written } from './quantity-update.ts'

/** SQL expression of an entry's tag without quotes, with functions that Citus can run on the servers with the entry. */
const TAG = "inventory.quantity::text || '-' || inventory.status"

const setMany = {
  name: 'inventory_set_distributed',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS new (pet_id, quantity, any_of, none_of)
         WHERE inventory.pet_id = new.pet_id
           AND (any_of IS NULL OR ${TAG} = ANY (string_to_array(any_of, ',')))
           AND (none_of IS NULL OR ${TAG} <> ALL (string_to_array(none_of, ',')))
         RETURNING new.pet_id AS key, ${selectFields('inventory')}`,
}

/** Only counts triggers for UPDATE, because Citus itself adds one for TRUNCATE. */
const hasRules = {
  name: 'inventory_has_rules',
  text: `SELECT relhasrules OR relrowsecurity
             OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgtype & 16 <> 0)
             OR EXISTS (
               SELECT FROM pg_constraint
               WHERE conrelid = pg_class.oid AND contype = 'c'
                 AND conname NOT IN ('inventory_quantity_check', 'inventory_status_check')
             ) AS "hasRules"
         FROM pg_class WHERE oid = 'inventory'::regclass`,
}

/**
 * Implements `UpdateRepository.setQuantities` for a table that Citus distributes over several servers. Citus supports neither row
 * locks nor queries of system catalogs in a statement on several servers. Therefore the entries that do not meet their condition
 * are read after the update. An entry that meets it by then is neither in `entries` nor in `unmet`, and must be retried.
 */
export async function setDistributed(
  database: Database,
  updates: readonly QuantityUpdate[],
  asksForRules: boolean,
): Promise<Written> {
  const rows = await database
    .query<InventoryItem & { readonly key: bigint }>(setMany, [
      updates.map(({ petId }) => petId),
      updates.map(({ quantity }) => quantity),
      updates.map(({ condition }) => condition?.anyOf?.join() ?? null),
      updates.map(({ condition }) => condition?.noneOf?.join() ?? null),
    ])
    .catch(async (error: unknown) => {
      const isUndone =
        error instanceof DatabaseUnavailableError &&
        isRemoteLoss(error) &&
        (await hasSeveralPlacements(database))
      throw isUndone ? error.withCause(new WorkerLostError(error.cause)) : error
    })
  const entries = new Map(rows.map(({ key, ...entry }) => [key, entry]))
  const undecided = updates.filter(({ petId, condition }) => condition !== undefined && !entries.has(petId))
  try {
    const [rules] = asksForRules ? await database.query<{ hasRules: boolean }>(hasRules) : []
    return { entries, unmet: await unmetAmong(database, undecided), hasRules: rules?.hasRules === true }
  } catch (error) {
    // The updates are committed, so this error must not look like one that rejects all of them.
    const reason = new Error('The updates are committed, but not all of the stored entries could be read', {
      cause: error,
    })
    throw error instanceof DatabaseUnavailableError
      ? error.withCause(reason)
      : new DatabaseUnavailableError(reason)
  }
}

/**
 * Returns whether the table has several placements. If so, Citus commits in two phases and reports an error only before it has
 * decided to commit. With one placement, the worker may have committed on its own.
 */
async function hasSeveralPlacements(database: Database): Promise<boolean> {
  const rows = await database.query(
    `SELECT FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
     WHERE logicalrelid = 'inventory'::regclass LIMIT 2`,
  )
  return rows.length === 2
}

/** Returns whether the database has the extension Citus, which can distribute a table over several servers. */
export async function hasCitus(database: Database): Promise<boolean> {
  return (await database.query(`SELECT WHERE ${HAS_CITUS}`)).length > 0
}

/** Returns the pets whose entries do not meet the condition of their update, with the tags of these entries. */
async function unmetAmong(
  database: Database,
  updates: readonly QuantityUpdate[],
): Promise<Map<bigint, string>> {
  if (updates.length === 0) return new Map()
  const rows = await database.query<{ petId: bigint; tag: string }>(
    `SELECT pet_id::bigint AS "petId", ${TAG} AS tag FROM inventory WHERE pet_id = ANY ($1::bigint[])`,
    [updates.map(({ petId }) => petId)],
  )
  const tags = new Map(rows.map(({ petId, tag }) => [petId, tag]))
  return new Map(
    updates.flatMap(({ petId, condition }) => {
      const tag = tags.get(petId)
      return tag !== undefined && !isMet(tag, condition) ? [[petId, tag]] : []
    }),
  )
}

function isMet(tag: string, { anyOf, noneOf }: Condition = {}): boolean {
  return anyOf?.includes(tag) !== false && noneOf?.includes(tag) !== true
}
