import type { Pool } from '../../database/pool.ts'
import type { NamedStatement, Value } from '../../database/statement.ts'
import { StatementError } from '../../database/statement-error.ts'
import { ENTRY_FIELDS } from '../entry/columns.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { TABLE_STATE, tableState } from './table-state.ts'

/**
 * PostgreSQL settings for sessions that update. With the default costs, PostgreSQL scans a whole table of a thousand rows to find
 * ten of them, which takes twice as long as ten index lookups (PostgreSQL manual, section 19.7.2).
 */
export const updateSettings = { random_page_cost: '1.1' }

/** What has become of a statement that sets quantities. Only after `made` and `unknown` may something have changed. */
export type StatementResult =
  /** It is committed. */
  | ({ readonly kind: 'made' } & MadeUpdates)
  /** It has waited for a lock until the lock timeout. */
  | { readonly kind: 'locked' }
  /** PostgreSQL has rejected it, perhaps because of one of its updates. */
  | { readonly kind: 'rejected'; readonly error: unknown }
  /** The database cannot serve it now. */
  | { readonly kind: 'unavailable'; readonly error: unknown }
  | { readonly kind: 'unknown'; readonly error: unknown }

/** Entries by petId. */
export interface MadeUpdates {
  /** Those of the updates that were made, as stored. */
  readonly entries: ReadonlyMap<bigint, InventoryItem>
  /** Those of the other pets, as far as they have one. Undefined without others, or if they could not be read. */
  readonly others: Promise<ReadonlyMap<bigint, StoredEntry> | undefined> | undefined
}

/** An entry and the transaction that wrote its row, unless Citus manages the table. */
export interface StoredEntry extends InventoryItem {
  readonly version?: string
}

/**
 * SQL expression of an entry's tag without quotes. Conditions compare tags as text, so that `05-sold` does not match `5-sold`.
 * Only has functions that Citus can run on the servers with the entry.
 */
const TAG = "entry.quantity::text || '-' || entry.status"

/** In place of the tags of which an entry must have one, if it may have any. Not NULL, which is a text if `array_nulls` is off. */
const ANY_TAG = '*'

/**
 * Locks the rows that nobody else has locked. It has the tags of the rows as they were locked, because an UPDATE first evaluates its
 * conditions on rows as they were when it began. Triggers may wait for other locks, but not for long, as all updates wait with them.
 */
const UNLOCKED = `(SELECT entry.pet_id AS id, ${TAG} AS tag FROM inventory AS entry
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
function findStatement(kind: Kind, isConditional: boolean, namesCallers: boolean): NamedStatement {
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
    WHERE entry.pet_id = ${id} ${skipsLocked ? `AND unlocked.id = ${id}` : ''} ${isConditional ? conditions : ''}
      ${namesCallers ? callers : ''}
    RETURNING ${id} AS key, ${ENTRY_FIELDS}`
  const statement = { name, text }
  statements.set(name, statement)
  return statement
}

/** Statements that return the entries of pets. The second one also returns `StoredEntry.version`, which Citus does not support. */
const ENTRIES = `SELECT ${ENTRY_FIELDS} FROM inventory AS entry WHERE entry.pet_id = ANY ($1::bigint[])`
const VERSIONED_ENTRIES = ENTRIES.replace('SELECT', 'SELECT entry.xmin::text AS version,')

/** The texts of all statements of updates. */
export const updateTexts: readonly string[] = [
  ...(['quantity', 'quantities', 'unlocked_quantities'] as const).flatMap((kind) =>
    [true, false].flatMap((isConditional) =>
      [true, false].map((namesCallers) => findStatement(kind, isConditional, namesCallers).text),
    ),
  ),
  ...[ENTRIES, VERSIONED_ENTRIES, TABLE_STATE],
]

/**
 * Returns the statement that makes the updates, each of another pet, whose entries meet their conditions. Where it has waited for
 * another transaction, PostgreSQL evaluates the condition again, on what that one has committed (PostgreSQL manual, section 13.2.1).
 *
 * @param namesCallers whether the statement says who makes the updates, for the history
 */
function prepare(updates: readonly QuantityUpdate[], namesCallers: boolean, skipsLocked: boolean) {
  const isConditional = updates.some(({ condition }) => condition !== undefined)
  const parameters: Value[][] = [updates.map(({ petId }) => petId), updates.map(({ quantity }) => quantity)]
  if (isConditional)
    parameters.push(
      updates.map(({ condition }) => condition?.anyOf?.join() ?? ANY_TAG),
      updates.map(({ condition }) => condition?.noneOf?.join() ?? ''),
    )
  const kind = skipsLocked ? 'unlocked_quantities' : updates.length === 1 ? 'quantity' : 'quantities'
  const values: Value[] = kind === 'quantity' ? parameters.flat() : parameters.map(toArray)
  if (namesCallers) values.push(toCallers(updates))
  return { statement: findStatement(kind, isConditional, namesCallers), values }
}

/** Returns a JSON object with the name and the id of the key and the id of the request of each petId. */
function toCallers(updates: readonly QuantityUpdate[]): string {
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
function toArray(values: readonly Value[]): string {
  const texts = values.map((value) => (typeof value === 'string' ? `"${value}"` : value))
  return `{${texts.join()}}`
}

function toResult(error: unknown): StatementResult {
  if (!(error instanceof StatementError) || error.outcome === 'unknown') return { kind: 'unknown', error }
  if (error.outcome === 'notSent' || error.reason === 'readOnly') return { kind: 'unavailable', error }
  return error.reason === 'lockTimeout' ? { kind: 'locked' } : { kind: 'rejected', error }
}

export type UpdateRepository = ReturnType<typeof updateRepository>

/** Creates what writes quantities. No update waits for a statement of `probe`. */
export function updateRepository(database: Pool, probe: Pool) {
  const table = tableState(probe)

  /** Returns the entries of those pets that have one; undefined without a response, for which the next statement tells why. */
  const findEntries = async (petIds: readonly bigint[]) => {
    const text = table().isDistributed ? ENTRIES : VERSIONED_ENTRIES
    const rows = await database.query<StoredEntry>(text, [toArray(petIds)]).catch(() => undefined)
    return rows && new Map(rows.map((entry) => [entry.petId, entry]))
  }

  return {
    /** Maximum connections for updates. */
    updateConnections: database.statistics().size,

    table,

    /**
     * Sets the quantities of different pets in one transaction. An update whose condition is not met, or whose pet has no entry, is
     * not made. Never rejects.
     *
     * @param skipsLocked whether to skip rows that others have locked. With Citus, it has no effect
     */
    async setQuantities(updates: readonly QuantityUpdate[], skipsLocked: boolean): Promise<StatementResult> {
      const { isDistributed, namesCallers } = table()
      // In the same order in all processes, two that update the same pets do not deadlock.
      const inOrder = [...updates].sort((a, b) => (a.petId < b.petId ? -1 : 1))
      const { statement, values } = prepare(inOrder, namesCallers, skipsLocked && !isDistributed)
      try {
        const rows = await database.query<InventoryItem & { readonly key: bigint }>(statement, values)
        // A trigger may have changed the petId of the entry.
        const entries = new Map(rows.map((row) => [row.key, row]))
        const others = updates.filter(({ petId }) => !entries.has(petId)).map(({ petId }) => petId)
        return { kind: 'made', entries, others: others.length === 0 ? undefined : findEntries(others) }
      } catch (error) {
        return toResult(error)
      }
    },
  }
}
