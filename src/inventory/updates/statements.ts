import type { Statement } from '../../database/database.ts'
import { selectFields } from '../entry/columns.ts'
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
export const TAG = "inventory.quantity::text || '-' || inventory.status"

const setOne = {
  name: 'inventory_set_quantity',
  text: `UPDATE inventory SET quantity = $2
         WHERE pet_id = $1::bigint
         RETURNING $1::bigint AS key, ${selectFields()}`,
}

const setOneIf = {
  name: 'inventory_set_quantity_if',
  text: `UPDATE inventory SET quantity = $2
         WHERE pet_id = $1::bigint AND ${meets('$3::text', '$4::text')}
         RETURNING $1::bigint AS key, ${selectFields()}`,
}

const setMany = {
  name: 'inventory_set_quantities',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[]) AS new (pet_id, quantity)
         WHERE inventory.pet_id = new.pet_id
         RETURNING new.pet_id AS key, ${selectFields('inventory')}`,
}

const setManyIf = {
  name: 'inventory_set_quantities_if',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS new (pet_id, quantity, any_of, none_of)
         WHERE inventory.pet_id = new.pet_id AND ${meets('any_of', 'none_of')}
         RETURNING new.pet_id AS key, ${selectFields('inventory')}`,
}

/** The texts of all statements that update entries. */
export const statementTexts = [setOne, setOneIf, setMany, setManyIf].map(({ text }) => text)

/**
 * Returns the statement that makes the updates, each of another pet, whose entries meet their conditions. Where it has waited for
 * another transaction, PostgreSQL evaluates the condition again, on what that one has committed (PostgreSQL manual, section
 * 13.2.1). Conditions and callers slow a batch down, so updates that need none have a statement without.
 *
 * @param isRecorded whether the history records the updates
 */
export function updateStatement(updates: readonly QuantityUpdate[], isRecorded: boolean): UpdateStatement {
  const update = statementOf(updates)
  return isRecorded ? withCallers(update, updates) : update
}

interface NamedStatement extends UpdateStatement {
  readonly statement: typeof setOne
}

function statementOf(updates: readonly QuantityUpdate[]): NamedStatement {
  const isConditional = updates.some(({ condition }) => condition !== undefined)
  const anyOf = ({ condition }: QuantityUpdate): string | null => condition?.anyOf?.join() ?? null
  const noneOf = ({ condition }: QuantityUpdate): string | null => condition?.noneOf?.join() ?? null
  const [only] = updates
  if (only !== undefined && updates.length === 1) {
    const values = [only.petId, only.quantity]
    return isConditional
      ? { statement: setOneIf, values: [...values, anyOf(only), noneOf(only)] }
      : { statement: setOne, values }
  }
  const values = [
    arrayOf(updates.map(({ petId }) => petId)),
    arrayOf(updates.map(({ quantity }) => quantity)),
  ]
  return isConditional
    ? {
        statement: setManyIf,
        values: [...values, textArrayOf(updates.map(anyOf)), textArrayOf(updates.map(noneOf))],
      }
    : { statement: setMany, values }
}

/**
 * Returns the same statement with a last parameter that tells the history who makes the updates: a JSON object with the name and
 * the id of the key and the id of the request of each petId. It is set once, before the triggers run, for this transaction.
 */
function withCallers(
  { statement: { name, text }, values }: NamedStatement,
  updates: readonly QuantityUpdate[],
): UpdateStatement {
  const setting = `(SELECT set_config('inventory.callers', $${values.length + 1}::text, true)) IS NOT NULL`
  const callers = updates.map(
    ({ petId, caller }) =>
      `"${petId}":${JSON.stringify([caller?.key?.name, caller?.key?.id, caller?.requestId])}`,
  )
  return {
    statement: { name: `${name}_recorded`, text: text.replace('RETURNING', `AND ${setting} RETURNING`) },
    values: [...values, `{${callers.join()}}`],
  }
}

/** Returns the SQL condition on an entry's tag. `anyOf` and `noneOf` are tags, separated by commas, or NULL. */
function meets(anyOf: string, noneOf: string): string {
  return `(${anyOf} IS NULL OR ${TAG} = ANY (string_to_array(${anyOf}, ',')))
           AND (${noneOf} IS NULL OR ${TAG} <> ALL (string_to_array(${noneOf}, ',')))`
}

/** Returns the text of a PostgreSQL array. The driver would quote each element, which is slower. */
export function arrayOf(numbers: readonly (bigint | number)[]): string {
  return `{${numbers.join()}}`
}

/** Returns the text of a PostgreSQL array of tags, none of which has quotes or backslashes. */
function textArrayOf(texts: readonly (string | null)[]): string {
  return `{${texts.map((text) => (text === null ? 'NULL' : `"${text}"`)).join()}}`
}
