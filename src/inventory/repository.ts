import type { TextRow } from '../database/copy-out.ts'
import { copyOutputReader } from '../database/copy-text.ts'
import { isCancelled, isNotSupported, mayBeUnsupportedByCitus } from '../database/failures.ts'
import { isPlainPostgres } from '../database/plain-postgres.ts'
import type { Database } from '../database/pool.ts'
import { COLUMN_NAMES, columns, ENTRY_JSON, type NewItem, selectFields, valueOrInitial } from './columns.ts'
import { hasCitus, setDistributed } from './distributed-updates.ts'
import type { QuantityUpdate, Written } from './quantity-update.ts'
import type { InventoryItem, PetStatus } from './schemas.ts'

export type { QuantityUpdate, Written }

/**
 * Identifies the committed state that a list was read from: where two validators are equal, nothing was committed in
 * between, and the name of the table stands for the same table.
 */
export interface ListValidator {
  /** The start of the server, the session, and the table that the session finds by its name. */
  readonly source: string
  /** Which transactions have ended (PostgreSQL manual, section 9.27.9, `pg_current_snapshot`). */
  readonly snapshot: string
}

/** The state that a list was read from, as far as later changes can be told from it. */
export interface ListState {
  readonly validator: ListValidator
  /** The definition of the table. Where it is equal, a row that stayed has the same text. */
  readonly table: string
}

/** What PostgreSQL says of the table in the transaction that reads it. */
export interface ListSource {
  /** The version of the server in its own words. */
  readonly version: string
  /** That of the entries, or an earlier one. Undefined where a change could go unnoticed. */
  readonly state: ListState | undefined
}

/** How a list differs from an earlier one. */
export interface ListChanges {
  readonly state: ListState
  /** How many entries there are; nothing is counted where the state is the same. */
  readonly count: number
  /** The entries that are new or may have changed, in ascending petId, each a line; the last one has no newline. */
  readonly lines: Buffer
}

/** All access to the table `inventory`. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface InventoryRepository {
  /**
   * Reads every entry in ascending petId as of one moment, each a line of the JSON text that the response schema makes of
   * it. `onSource` is called once, before the first line.
   */
  lines(onSource: (source: ListSource) => void): AsyncIterable<Buffer>

  /**
   * Reads the entries that were written since that state, in one statement that counts all entries. Whether entries were
   * removed is not among the changes: then there are fewer than the former ones and the new ones together. Undefined where
   * the changes cannot be told, are more than `limit`, or the server cancelled the statement by a time limit of its own.
   */
  changesSince(state: ListState, limit: number): Promise<ListChanges | undefined>

  /** The validator of a list that would be read now. It reads no table and so waits for no lock. */
  validator(): Promise<ListValidator>

  /** The most connections that updates have. */
  readonly updateConnections: number

  /**
   * Sets the quantities of different pets in one transaction and returns their entries as PostgreSQL has stored them, and
   * whether there are rules, if asked for. The statement that writes decides about the conditions. All are committed when
   * the promise resolves. If it rejects with an error that `wasRefused` recognizes, none is; otherwise the outcome is
   * unknown.
   */
  setQuantities(updates: readonly QuantityUpdate[], asksForRules: boolean): Promise<Written>

  /**
   * Which of the pets have an entry whose row another transaction has locked at this moment; all of them where the server
   * cannot tell. Waits for no row; for a lock on the table, as every statement does.
   */
  lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Which of the pets have an entry. */
  existingAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Whether commits of this role have waited for more than a second for a synchronous standby to confirm them. */
  commitsWait(): Promise<boolean>

  /** How many entries there are with each status. */
  countByStatus(): Promise<Record<PetStatus, number>>

  /** Adds entries to a table that has none; a table with entries stays as it is. */
  addIfEmpty(items: readonly NewItem[]): Promise<void>
}

/**
 * What sessions set that update. By its default costs PostgreSQL reads a table of a thousand rows from end to end in
 * order to find ten of them, which takes it twice as long as to look up each (PostgreSQL manual, section 19.7.2).
 */
export const updateSettings = { random_page_cost: '1.1' }

interface WrittenRow extends InventoryItem {
  readonly key: bigint
  readonly hasRules: boolean
}

const hasRules = `(
  (SELECT relhastriggers OR relhasrules OR relrowsecurity FROM pg_class WHERE oid = 'inventory'::regclass)
  OR EXISTS (
    SELECT FROM pg_constraint
    WHERE conrelid = 'inventory'::regclass AND contype = 'c'
      AND conname NOT IN ('inventory_quantity_check', 'inventory_status_check')
  )
) AS "hasRules"`

const setOne = {
  name: 'inventory_set_quantity',
  text: `UPDATE inventory SET quantity = $2 WHERE pet_id = $1
         RETURNING $1 AS key, ${selectFields()}, false AS "hasRules"`,
}

const setMany = {
  name: 'inventory_set_quantities',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[]) AS new (pet_id, quantity)
         WHERE inventory.pet_id = new.pet_id
         RETURNING new.pet_id AS key, ${selectFields('inventory')}, ${hasRules}`,
}

/**
 * Locks the rows, compares them as they are then, and writes those that are as required. Without the lock, a row that
 * another transaction has just changed could not be told from one that is not there. Tags are compared as text, so that
 * no two texts stand for the same entry.
 */
const setManyIf = {
  name: 'inventory_set_quantities_if',
  text: `WITH locked AS MATERIALIZED (
           SELECT inventory.pet_id, inventory.quantity || '-' || inventory.status AS tag,
                  new.quantity AS new_quantity, new.any_of, new.none_of
           FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) AS new (pet_id, quantity, any_of, none_of)
           JOIN inventory ON inventory.pet_id = new.pet_id
           ORDER BY inventory.pet_id
           FOR NO KEY UPDATE OF inventory
         ), decided AS (
           SELECT pet_id, new_quantity,
                  (any_of IS NULL OR tag = ANY (string_to_array(any_of, ',')))
                  AND (none_of IS NULL OR tag <> ALL (string_to_array(none_of, ','))) AS is_met
           FROM locked
         ), updated AS (
           UPDATE inventory SET quantity = new_quantity
           FROM decided
           WHERE inventory.pet_id = decided.pet_id AND is_met
           RETURNING decided.pet_id AS key, ${columns.map(({ column }) => `inventory.${column}`).join(', ')}
         )
         SELECT decided.pet_id AS key, is_met AS "isMet", ${selectFields('updated')},
                ${hasRules}
         FROM decided LEFT JOIN updated ON updated.key = decided.pet_id`,
}

/** Every field of the entry is null if nothing was written. */
type DecidedRow = { readonly key: bigint; readonly isMet: boolean; readonly hasRules: boolean } & (
  | InventoryItem
  | { readonly petId: null }
)

function writtenBy(rows: readonly WrittenRow[]): Written {
  return {
    entries: new Map(rows.map(({ key, hasRules, ...entry }) => [key, entry])),
    unmet: new Set(),
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
    const { key, isMet, hasRules, ...entry } = row
    entries.set(key, entry)
  }
  return {
    entries,
    unmet: new Set(rows.filter(({ isMet }) => !isMet).map(({ key }) => key)),
    hasRules: rows.some(({ hasRules }) => hasRules),
  }
}

/** What the queue of updates needs. */
export type UpdateRepository = Pick<
  InventoryRepository,
  'updateConnections' | 'setQuantities' | 'lockedAmong' | 'existingAmong' | 'commitsWait'
>
const TABLE = "to_regclass('inventory')::oid"

const SNAPSHOT = 'pg_current_snapshot()::text'

const IS_READ_ONLY = "(pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')"

/**
 * Everything that a validator rests on and that can change without a commit: the server and its process, and, by a reload
 * of the configuration, what `search_path` and `row_security` make of the table's name. Whatever else it rests on is in
 * the system catalogs, which change by a commit only, as the entries do.
 */
function sourceText({ isPooled }: Database): string {
  const parts = [
    'pg_postmaster_start_time()',
    'pg_backend_pid()',
    // Costs as much as all the others, and is needed only where the process is not the one that this client connected to.
    ...(isPooled ? ['(SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid()))'] : []),
    TABLE,
    `row_security_active(${TABLE})`,
  ]
  return `concat_ws(' ', ${parts.join()})`
}

const IS_COLUMN = `attrelid = pg_class.oid AND attname IN (${columns.map(({ column }) => `'${column}'`).join(', ')})`

/**
 * True where every change of the list is a commit that moves this server's snapshot, and writes a new version of each row
 * that changes: only for an ordinary table without
 * children that is stored here. Other kinds and access methods can have rows elsewhere, as the tables of an extension that
 * distributes them do; a row security policy can depend on the time; the text of other types can change with the type.
 */
const IS_COMPARABLE = `NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
  AND EXISTS (
    SELECT FROM pg_class JOIN pg_am ON pg_am.oid = relam
    WHERE pg_class.oid = ${TABLE} AND relkind = 'r' AND amname = 'heap' AND NOT relhassubclass
      AND NOT row_security_active(pg_class.oid)
      AND ${columns.length} = (
        SELECT count(*) FROM pg_attribute
        WHERE ${IS_COLUMN} AND attgenerated <> 'v'
          AND atttypid = ANY ('{bigint,integer,smallint,text,varchar}'::regtype[])
      )
      AND EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = pg_class.oid AND indisprimary AND indisvalid AND indimmediate AND indnkeyatts = 1
          AND attname = 'pet_id'
      )
  )`

/** Differs after whatever gives rows another text or other versions without an UPDATE, such as ALTER TABLE or VACUUM FULL. */
const TABLE_STATE = `(
  SELECT concat_ws(' ', pg_class.oid, relfilenode, pg_class.xmin, pg_namespace.xmin,
    (SELECT string_agg(concat_ws(' ', attnum, pg_attribute.xmin), ' ' ORDER BY attnum) FROM pg_attribute WHERE ${IS_COLUMN}))
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE pg_class.oid = ${TABLE}
)`

interface ChangesRow {
  readonly source: string
  readonly snapshot: string
  readonly table: string | null
  readonly isReadOnly: boolean
  readonly isComparable: boolean
  readonly count: bigint
  readonly changed: number
  readonly lines: string | null
}

/**
 * How many transactions there may be between two states that are compared. Row versions have the lower 32 bits of the
 * number of their transaction, of which half are after a given one and half before it.
 */
const OLDEST_AGE = 2n ** 30n

/**
 * Every version of a row that an earlier snapshot could not see was written by a transaction that was in progress then or
 * began later, so one that is not older than the oldest in progress then, `$1`. docs/decisions.md has the argument. Up to
 * `$2` entries are returned, found by their ids, so that PostgreSQL does not build a text of the whole table. Where the
 * snapshot is still `$3`, the table is not scanned.
 */
function changesText(source: string): string {
  return `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly", ${TABLE_STATE} AS "table",
                 ${IS_COMPARABLE} AS "isComparable", count, changed,
                 CASE WHEN changed <= $2 THEN (
                   SELECT string_agg(${ENTRY_JSON}, E'\\n' ORDER BY pet_id)
                   FROM unnest(ids) AS id JOIN inventory ON pet_id = id
                 ) END AS lines
          FROM (
            SELECT count, ids, coalesce(cardinality(ids), 0) AS changed
            FROM (
              SELECT count(*) AS count,
                     array_agg(pet_id) FILTER (WHERE age(xmin) <= (SELECT age($1::xid))) AS ids
              FROM inventory
              WHERE ${SNAPSHOT} <> $3
            ) AS scan
          ) AS scan`
}

/** `lists` serves the reads of all entries, `database` everything else; neither ever waits for the other. */
export function inventoryRepository(database: Database, lists: Database): InventoryRepository {
  const source = sourceText(lists)
  /** Whether Citus has refused a statement for a table that is on one server. */
  let isDistributed = false
  /**
   * A crash ends every server process without another start of the server, and numbers of transactions that had not
   * committed may be assigned again after it. The next connection may get the same process id, so connections count.
   */
  const validatorOf = (text: string, snapshot: string, isReadOnly: boolean): ListValidator => {
    // Where nothing can be written, the updates of other processes may be going to another server already.
    if (isReadOnly) throw lists.refuseServer()
    return { source: `${text} ${lists.statistics().opened} ${lists.generation()}`, snapshot }
  }
  const sourceIn = ([text, snapshot, isReadOnly, version, table, isComparable]: TextRow): ListSource => {
    if (text == null || snapshot == null || version == null)
      throw new Error('PostgreSQL has not named the source of a list')
    const validator = validatorOf(text, snapshot, isReadOnly === 't')
    const isExact = isComparable === 't' && table != null && isPlainPostgres(version)
    return { version, state: isExact ? { validator, table } : undefined }
  }

  return {
    async *lines(onSource) {
      const read = copyOutputReader()
      let row: TextRow | undefined
      const pieces = lists.copy(`SELECT ${ENTRY_JSON} FROM inventory ORDER BY pet_id`, {
        text: `SELECT ${source}, ${SNAPSHOT}, ${IS_READ_ONLY}, version(), ${TABLE_STATE}, ${IS_COMPARABLE}`,
        onRow: (received) => {
          row = received
        },
      })
      for await (const piece of pieces) {
        if (row !== undefined) onSource(sourceIn(row))
        row = undefined
        yield read(piece)
      }
      // Of a list without entries there is no piece.
      if (row !== undefined) onSource(sourceIn(row))
    },

    async changesSince({ validator, table }, limit) {
      const oldest = BigInt(validator.snapshot.split(':', 1)[0] ?? '')
      const rows = await lists
        .query<ChangesRow>({ name: 'inventory_list_changes', text: changesText(source) }, [
          BigInt.asUintN(32, oldest),
          limit,
          validator.snapshot,
        ])
        .catch((error: unknown) => {
          // Behind a pooler, the role has a limit for every statement; `lines` sets one for itself.
          if (isCancelled(error)) return undefined
          throw error
        })
      if (rows === undefined) return undefined
      const [row] = rows
      if (row === undefined) throw new Error('PostgreSQL has answered without a row')
      const state: ListState = {
        validator: validatorOf(row.source, row.snapshot, row.isReadOnly),
        table: row.table ?? '',
      }
      const newest = BigInt(row.snapshot.split(':')[1] ?? '')
      const isTold =
        row.isComparable &&
        state.validator.source === validator.source &&
        state.table === table &&
        newest - oldest < OLDEST_AGE &&
        row.changed <= limit
      if (!isTold) return undefined
      return { state, count: Number(row.count), lines: Buffer.from(row.lines ?? '') }
    },

    async validator() {
      const [row] = await lists.query<{ source: string; snapshot: string; isReadOnly: boolean }>({
        name: 'inventory_list_validator',
        text: `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly"`,
      })
      if (row === undefined) throw new Error('PostgreSQL has answered without a row')
      return validatorOf(row.source, row.snapshot, row.isReadOnly)
    },

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
          `SELECT pet_id AS "petId" FROM inventory
           WHERE pet_id = ANY ($1) AND pet_id NOT IN (
             SELECT pet_id FROM inventory WHERE pet_id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED
           )`,
          [petIds],
        )
        .catch((error: unknown) => {
          // Citus locks no rows on several servers.
          if (isNotSupported(error)) return petIds.map((petId) => ({ petId }))
          throw error
        })
      return new Set(rows.map(({ petId }) => petId))
    },

    async existingAmong(petIds) {
      const rows = await database.query<{ petId: bigint }>(
        'SELECT pet_id AS "petId" FROM inventory WHERE pet_id = ANY ($1)',
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

    async countByStatus() {
      const rows = await database.query<{ status: PetStatus; count: bigint }>(
        'SELECT status, count(*) AS count FROM inventory GROUP BY status',
      )
      const counts: Record<PetStatus, number> = { available: 0, pending: 0, sold: 0 }
      for (const { status, count } of rows) counts[status] = Number(count)
      return counts
    },

    async addIfEmpty(items) {
      await database.query(
        `INSERT INTO inventory (${COLUMN_NAMES})
         SELECT ${columns.map((column) => valueOrInitial(column.column, column)).join(', ')}
         FROM unnest(${columns.map(({ type }, index) => `$${index + 1}::${type}[]`).join(', ')}) AS new (${COLUMN_NAMES})
         WHERE NOT EXISTS (SELECT FROM inventory)`,
        columns.map(({ field }) => items.map((item) => item[field] ?? null)),
      )
    },
  }
}

/** The text of a PostgreSQL array, as the driver would make it by quoting each element. */
function arrayOf(numbers: readonly (bigint | number)[]): string {
  return `{${numbers.join()}}`
}
