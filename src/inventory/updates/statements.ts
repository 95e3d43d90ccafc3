import type { Statement } from '../../database/database.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'

/** A statement that updates entries, and its values. It returns an `UpdatedRow` for each entry that it has updated. */
export interface UpdateStatement {
  readonly statement: Statement
  readonly values: readonly (string | number | bigint | null)[]
}

/** An entry as stored, with the petId of its update, which a trigger may have changed in the entry. */
export interface UpdatedRow extends InventoryItem {
  readonly key: bigint
}

/**
 * SQL expression of an entry's tag without quotes. Conditions compare tags as text, so that `05-sold` does not match `5-sold`.
 * Only has functions that Citus can run on the servers with the entry.
 */
export const TAG = "quantity::text || '-' || status"

const setOne = {
  name: 'inventory_set_quantity',
  text: `UPDATE inventory SET quantity = $2
         WHERE pet_id = $1::bigint
         RETURNING $1::bigint AS key, ${ENTRY_FIELDS}`,
}

const setOneIf = {
  name: 'inventory_set_quantity_if',
  text: `UPDATE inventory SET quantity = $2
         WHERE pet_id = $1::bigint
           AND ($3::text IS NULL OR ${TAG} = ANY (string_to_array($3, ',')))
           AND ($4::text IS NULL OR ${TAG} <> ALL (string_to_array($4, ',')))
         RETURNING $1::bigint AS key, ${ENTRY_FIELDS}`,
}

const setMany = {
  name: 'inventory_set_quantities',
  text: `UPDATE inventory SET quantity = change.amount
         FROM unnest($1::bigint[], $2::integer[]) AS change (id, amount)
         WHERE pet_id = change.id
         RETURNING change.id AS key, ${ENTRY_FIELDS}`,
}

const setManyIf = {
  name: 'inventory_set_quantities_if',
  text: `UPDATE inventory SET quantity = change.amount
         FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS change (id, amount, any_of, none_of)
         WHERE pet_id = change.id
           AND (change.any_of IS NULL OR ${TAG} = ANY (string_to_array(change.any_of, ',')))
           AND (change.none_of IS NULL OR ${TAG} <> ALL (string_to_array(change.none_of, ',')))
         RETURNING change.id AS key, ${ENTRY_FIELDS}`,
}

/** The setting is made once, before the triggers run, and for this transaction only. */
const setOneRecorded = {
  name: 'inventory_set_quantity_recorded',
  text: `UPDATE inventory SET quantity = $2
         WHERE pet_id = $1::bigint
           AND ($3::text IS NULL OR ${TAG} = ANY (string_to_array($3, ',')))
           AND ($4::text IS NULL OR ${TAG} <> ALL (string_to_array($4, ',')))
           AND (SELECT set_config('inventory.callers', $5::text, true)) IS NOT NULL
         RETURNING $1::bigint AS key, ${ENTRY_FIELDS}`,
}

const setManyRecorded = {
  name: 'inventory_set_quantities_recorded',
  text: `UPDATE inventory SET quantity = change.amount
         FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS change (id, amount, any_of, none_of)
         WHERE pet_id = change.id
           AND (change.any_of IS NULL OR ${TAG} = ANY (string_to_array(change.any_of, ',')))
           AND (change.none_of IS NULL OR ${TAG} <> ALL (string_to_array(change.none_of, ',')))
           AND (SELECT set_config('inventory.callers', $5::text, true)) IS NOT NULL
         RETURNING change.id AS key, ${ENTRY_FIELDS}`,
}

/** The texts of all statements that update entries. */
export const statementTexts = [setOne, setOneIf, setOneRecorded, setMany, setManyIf, setManyRecorded].map(
  ({ text }) => text,
)

/**
 * Returns the statement that makes the updates, each of another pet, whose entries meet their conditions. Where it has waited for
 * another transaction, PostgreSQL evaluates the condition again, on what that one has committed (PostgreSQL manual, section
 * 13.2.1). Conditions and callers slow a batch down, so updates that need none have a statement without.
 *
 * @param namesCallers whether the statement says who makes the updates, for the history
 */
export function updateStatement(updates: readonly QuantityUpdate[], namesCallers: boolean): UpdateStatement {
  const callers = namesCallers ? [callersOf(updates)] : []
  const isConditional = namesCallers || updates.some(({ condition }) => condition !== undefined)
  const [only, ...others] = updates
  if (only !== undefined && others.length === 0) {
    const conditions = isConditional ? [anyOf(only), noneOf(only)] : []
    const statement = namesCallers ? setOneRecorded : isConditional ? setOneIf : setOne
    return { statement, values: [only.petId, only.quantity, ...conditions, ...callers] }
  }
  const ids = arrayOf(updates.map(({ petId }) => petId))
  const quantities = arrayOf(updates.map(({ quantity }) => quantity))
  const conditions = isConditional ? [textArrayOf(updates.map(anyOf)), textArrayOf(updates.map(noneOf))] : []
  const statement = namesCallers ? setManyRecorded : isConditional ? setManyIf : setMany
  return { statement, values: [ids, quantities, ...conditions, ...callers] }
}

function anyOf({ condition }: QuantityUpdate): string | null {
  return condition?.anyOf?.join() ?? null
}

function noneOf({ condition }: QuantityUpdate): string | null {
  return condition?.noneOf?.join() ?? null
}

/** Returns a JSON object with the name and the id of the key and the id of the request of each petId. */
function callersOf(updates: readonly QuantityUpdate[]): string {
  const callers = updates.map(
    ({ petId, caller }) =>
      `"${petId}":${JSON.stringify([caller?.key?.name, caller?.key?.id, caller?.requestId])}`,
  )
  return `{${callers.join()}}`
}

/** Returns the text of a PostgreSQL array. The driver would quote each element, which is slower. */
export function arrayOf(numbers: readonly (bigint | number)[]): string {
  return `{${numbers.join()}}`
}

/** Returns the text of a PostgreSQL array of tags, none of which has quotes or backslashes. */
function textArrayOf(texts: readonly (string | null)[]): string {
  return `{${texts.map((text) => (text === null ? 'NULL' : `"${text}"`)).join()}}`
}
