import type { NamedStatement, Value } from '../../database/statement.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'

/** An entry, with the petId of its update, which a trigger may have changed in the entry. */
export interface UpdatedRow extends InventoryItem {
  readonly key: bigint
}

/**
 * SQL expression of an entry's tag without quotes. Conditions compare tags as text, so that `05-sold` does not match `5-sold`.
 * Only has functions that Citus can run on the servers with the entry.
 */
const TAG = "entry.quantity::text || '-' || entry.status"

/** In place of the tags of which an entry must have one, if it may have any. Not NULL, which is a text if `array_nulls` is off. */
const ANY_TAG = '*'

/**
 * Locks the rows that nobody else has locked, as a subquery in FROM: PostgreSQL supports no rule `DO ALSO` for an UPDATE with WITH. It
 * has the tags of the rows as they were locked, because an UPDATE first evaluates its conditions on rows as they were when it began.
 * Triggers may wait for other locks, but not for long, as all updates wait with them.
 */
const UNLOCKED = `(SELECT entry.pet_id, ${TAG} AS tag FROM inventory AS entry
    WHERE entry.pet_id = ANY ($1::bigint[]) AND (SELECT set_config('lock_timeout', '25ms', true)) IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED) AS unlocked`

/** What a statement sets: a single quantity, several, or those of several whose rows nobody else has locked. */
type Kind = 'quantity' | 'quantities' | 'unlocked_quantities'

/** The statements by name. A text takes longer to make than to send. */
const statements = new Map<string, NamedStatement>()

/**
 * Returns the statement of a kind. Conditions and callers slow it down, so updates that need none have a statement without. One that
 * skips locked rows is slower, too.
 */
function statementOf(kind: Kind, isConditional: boolean, namesCallers: boolean): NamedStatement {
  const name = `inventory_set_${kind}${isConditional ? '_if' : ''}${namesCallers ? '_recorded' : ''}`
  const known = statements.get(name)
  if (known !== undefined) return known
  const isSingle = kind === 'quantity'
  const [id, amount, anyOf, noneOf] = isSingle
    ? ['$1::bigint', '$2', '$3::text', '$4::text']
    : ['change.id', 'change.amount', 'change.any_of', 'change.none_of']
  const changes = isConditional
    ? 'FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS change (id, amount, any_of, none_of)'
    : 'FROM unnest($1::bigint[], $2::integer[]) AS change (id, amount)'
  const skipsLocked = kind === 'unlocked_quantities'
  const tag = skipsLocked ? 'unlocked.tag' : TAG
  const conditions = `AND (${anyOf} = '${ANY_TAG}' OR ${tag} = ANY (string_to_array(${anyOf}, ',')))
           AND (${noneOf} = '' OR ${tag} <> ALL (string_to_array(${noneOf}, ',')))`
  // The setting is made once, before the triggers run, and for this transaction only.
  const callers = `AND (SELECT set_config('inventory.callers', $${isConditional ? 5 : 3}::text, true)) IS NOT NULL`
  const text = `UPDATE inventory AS entry SET quantity = ${amount}
    ${isSingle ? '' : changes}${skipsLocked ? `, ${UNLOCKED}` : ''}
    WHERE entry.pet_id = ${id} ${skipsLocked ? `AND unlocked.pet_id = ${id}` : ''} ${isConditional ? conditions : ''}
      ${namesCallers ? callers : ''}
    RETURNING ${id} AS key, ${ENTRY_FIELDS}`
  const statement = { name, text }
  statements.set(name, statement)
  return statement
}

const textsOf = (kind: Kind): string[] =>
  [true, false].flatMap((isConditional) =>
    [true, false].map((namesCallers) => statementOf(kind, isConditional, namesCallers).text),
  )

/** The texts of all statements that update entries. Without the optional ones, no statement skips locked rows. */
export const statementTexts = {
  required: [...textsOf('quantity'), ...textsOf('quantities')],
  optional: textsOf('unlocked_quantities'),
}

/**
 * Returns the statement that makes the updates, each of another pet, whose entries meet their conditions. Where it has waited for
 * another transaction, PostgreSQL evaluates the condition again, on what that one has committed (PostgreSQL manual, section
 * 13.2.1). It returns an `UpdatedRow` for each.
 *
 * @param namesCallers whether the statement says who makes the updates, for the history
 */
export function updateStatement(
  updates: readonly QuantityUpdate[],
  namesCallers: boolean,
  skipsLocked: boolean,
) {
  const isConditional = updates.some(({ condition }) => condition !== undefined)
  const parameters: Value[][] = [updates.map(({ petId }) => petId), updates.map(({ quantity }) => quantity)]
  if (isConditional)
    parameters.push(
      updates.map(({ condition }) => condition?.anyOf?.join() ?? ANY_TAG),
      updates.map(({ condition }) => condition?.noneOf?.join() ?? ''),
    )
  const kind = skipsLocked ? 'unlocked_quantities' : updates.length === 1 ? 'quantity' : 'quantities'
  const values: Value[] = kind === 'quantity' ? parameters.flat() : parameters.map(arrayOf)
  if (namesCallers) values.push(callersOf(updates))
  return { statement: statementOf(kind, isConditional, namesCallers), values }
}

/** Returns a JSON object with the name and the id of the key and the id of the request of each petId. */
function callersOf(updates: readonly QuantityUpdate[]): string {
  const callers = updates.map(
    ({ petId, caller }) =>
      `"${petId}":${JSON.stringify([caller?.key?.name, caller?.key?.id, caller?.requestId])}`,
  )
  return `{${callers.join()}}`
}

/**
 * Returns the text of a PostgreSQL array. The driver would quote each element, which is slower; numbers and tags, separated by
 * commas, have no braces, quotes or backslashes.
 */
export function arrayOf(values: readonly Value[]): string {
  const texts = values.map((value) => (typeof value === 'string' ? `"${value}"` : value))
  return `{${texts.join()}}`
}
