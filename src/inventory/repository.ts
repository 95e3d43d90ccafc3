import type { Database } from '../database/pool.ts'
import type { Condition } from './condition.ts'
import { isPlainPostgres } from './plain-postgres.ts'
import type { InventoryItem, PetStatus } from './schemas.ts'

/** Where a server stands in its history. Two equal positions of one plain PostgreSQL have no commit between them. */
export interface Position {
  /** When the server was started: what another one knew says nothing about this one. */
  readonly startedAt: string
  /**
   * The process of the server that has answered. A crash ends them all without another start of the server, and the
   * numbers of transactions that had not committed may be given out again after it.
   */
  readonly backend: number
  /** Which connections were in use; another server's position says nothing about this one. */
  readonly generation: number
  /** Which transactions have ended (PostgreSQL manual, section 9.27.9, `pg_current_snapshot`). */
  readonly transactions: string
}

/** The new quantity of one pet. */
export interface QuantityUpdate {
  readonly petId: bigint
  readonly quantity: number
  /** What the entry must be, for the update to be made. */
  readonly condition?: Condition | undefined
}

/** What a statement has written. */
export interface Written {
  /** The entries as they are stored, by the petId that was asked for. */
  readonly entries: ReadonlyMap<bigint, InventoryItem>
  /** Pets whose entries are not as the condition of their update requires; those entries were left as they are. */
  readonly unmet: ReadonlySet<bigint>
  /** Whether the table has triggers, rules or constraints that the migrations did not make, and that may change a row. */
  readonly hasRules: boolean
}

/** All access to the table `inventory`. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface InventoryRepository {
  /** Every entry in ascending petId as of one moment, each a line of the JSON text that the response schema makes of it. */
  lines(): AsyncIterable<Buffer>

  position(): Promise<Position>

  /** What kind of server it is; only of a plain PostgreSQL are positions known to be comparable. */
  server(): Promise<{ version: string; isPlain: boolean }>

  /** The most connections that updates have. */
  readonly updateConnections: number

  /**
   * Sets the quantities of different pets in one transaction and returns their entries as PostgreSQL has stored them, and
   * whether there are rules, if asked for. The statement that writes decides about the conditions. All are committed when the promise resolves. When it rejects with what `wasRefused` knows, none is; otherwise the outcome
   * is unknown.
   */
  setQuantities(updates: readonly QuantityUpdate[], asksForRules: boolean): Promise<Written>

  /**
   * Which of the pets have an entry whose row another transaction has locked at this moment. Waits for no row; for a lock
   * on the table, as every statement does.
   */
  lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Which of the pets have an entry. */
  existingAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

  /** Whether commits of this role have waited for more than a second for a synchronous standby to confirm them. */
  commitsWait(): Promise<boolean>

  /** How many entries there are with each status. */
  countByStatus(): Promise<Record<PetStatus, number>>

  /** Adds entries to a table that has none; a table with entries stays as it is. */
  addIfEmpty(items: readonly InventoryItem[]): Promise<void>
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
         RETURNING $1 AS key, pet_id AS "petId", quantity, status, false AS "hasRules"`,
}

const setMany = {
  name: 'inventory_set_quantities',
  text: `UPDATE inventory SET quantity = new.quantity
         FROM unnest($1::bigint[], $2::integer[]) AS new (pet_id, quantity)
         WHERE inventory.pet_id = new.pet_id
         RETURNING new.pet_id AS key, inventory.pet_id AS "petId", inventory.quantity, status, ${hasRules}`,
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
           RETURNING decided.pet_id AS key, inventory.pet_id, inventory.quantity, inventory.status
         )
         SELECT decided.pet_id AS key, is_met AS "isMet", updated.pet_id AS "petId", updated.quantity, updated.status,
                ${hasRules}
         FROM decided LEFT JOIN updated ON updated.key = decided.pet_id`,
}

interface DecidedRow {
  readonly key: bigint
  readonly isMet: boolean
  /** Null, as all of the entry, if nothing was written. */
  readonly petId: bigint | null
  readonly quantity: number | null
  readonly status: PetStatus | null
  readonly hasRules: boolean
}

async function setConditionally(database: Database, updates: readonly QuantityUpdate[]): Promise<Written> {
  const rows = await database.query<DecidedRow>(setManyIf, [
    arrayOf(updates.map(({ petId }) => petId)),
    arrayOf(updates.map(({ quantity }) => quantity)),
    updates.map(({ condition }) => condition?.anyOf?.join() ?? null),
    updates.map(({ condition }) => condition?.noneOf?.join() ?? null),
  ])
  const entries = new Map<bigint, InventoryItem>()
  for (const { key, petId, quantity, status } of rows) {
    if (petId !== null && quantity !== null && status !== null) entries.set(key, { petId, quantity, status })
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

/** `lists` serves the reads of all entries, `database` everything else; neither ever waits for the other. */
export function inventoryRepository(database: Database, lists: Database): InventoryRepository {
  return {
    lines() {
      return lists.copy(
        `SELECT '{"petId":' || pet_id || ',"quantity":' || quantity || ',"status":"' || status || '"}'
         FROM inventory ORDER BY pet_id`,
      )
    },

    async position() {
      const [position] = await lists.query<Omit<Position, 'generation'> & { isReadOnly: boolean }>({
        name: 'inventory_position',
        text: `SELECT pg_postmaster_start_time()::text AS "startedAt", pg_backend_pid() AS backend,
                      pg_current_snapshot()::text AS transactions,
                      pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "isReadOnly"`,
      })
      if (position === undefined) throw new Error('PostgreSQL has answered without a row')
      const { isReadOnly, ...rest } = position
      // Where nothing can be written, the updates of other processes may be going to another server already.
      if (isReadOnly) throw lists.refuseServer()
      return { ...rest, generation: lists.generation() }
    },

    async server() {
      const [server] = await lists.query<{ version: string; isTable: boolean; hasCitus: boolean }>(
        `SELECT version() AS version,
                EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('inventory') AND relkind = 'r') AS "isTable",
                EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS "hasCitus"`,
      )
      if (server === undefined) throw new Error('PostgreSQL has answered without a row')
      const { version, isTable, hasCitus } = server
      return { version, isPlain: isPlainPostgres(version) && isTable && !hasCitus }
    },

    updateConnections: database.statistics().size,

    async setQuantities(updates, asksForRules) {
      if (updates.some(({ condition }) => condition !== undefined)) return setConditionally(database, updates)
      const [only, ...others] = updates
      const rows =
        only !== undefined && others.length === 0 && !asksForRules
          ? await database.query<WrittenRow>(setOne, [only.petId, only.quantity])
          : await database.query<WrittenRow>(setMany, [
              arrayOf(updates.map(({ petId }) => petId)),
              arrayOf(updates.map(({ quantity }) => quantity)),
            ])
      return {
        entries: new Map(rows.map(({ key, petId, quantity, status }) => [key, { petId, quantity, status }])),
        unmet: new Set(),
        hasRules: rows.some(({ hasRules }) => hasRules),
      }
    },

    async lockedAmong(petIds) {
      const rows = await database.query<{ petId: bigint }>(
        `SELECT pet_id AS "petId" FROM inventory
         WHERE pet_id = ANY ($1) AND pet_id NOT IN (
           SELECT pet_id FROM inventory WHERE pet_id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED
         )`,
        [petIds],
      )
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
        `INSERT INTO inventory (pet_id, quantity, status)
         SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[])
         WHERE NOT EXISTS (SELECT FROM inventory)`,
        [
          items.map((item) => item.petId),
          items.map((item) => item.quantity),
          items.map((item) => item.status),
        ],
      )
    },
  }
}

/** The text of a PostgreSQL array, as the driver would make it by quoting each element. */
function arrayOf(numbers: readonly (bigint | number)[]): string {
  return `{${numbers.join()}}`
}
