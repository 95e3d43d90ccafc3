import type { Database } from '../database/pool.ts'
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
}

/** All access to the table `inventory`. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface InventoryRepository {
  /** Every entry in ascending petId as of one moment, each a line of the JSON text that the response schema makes of it. */
  lines(): AsyncIterable<Buffer>

  position(): Promise<Position>

  /** What kind of server it is; only of a plain PostgreSQL are positions known to be comparable. */
  server(): Promise<{ version: string; isPlain: boolean }>

  /**
   * Sets one pet's quantity and returns its status, or undefined where the pet has no entry. It is committed when the
   * promise resolves; repeating it does no harm, as the value is absolute.
   */
  setQuantity(update: QuantityUpdate): Promise<PetStatus | undefined>

  /**
   * The same for many different pets in one transaction: all of them are committed, or none. Returns the status of
   * each pet that has an entry.
   */
  setQuantities(updates: readonly QuantityUpdate[]): Promise<Map<bigint, PetStatus>>

  /** Which of the pets have an entry whose row someone's open transaction holds at this moment. */
  heldAmong(petIds: readonly bigint[]): Promise<Set<bigint>>

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

    async setQuantity({ petId, quantity }) {
      const [row] = await database.query<{ status: PetStatus }>(
        {
          name: 'inventory_set_quantity',
          text: 'UPDATE inventory SET quantity = $2 WHERE pet_id = $1 RETURNING status',
        },
        [petId, quantity],
      )
      return row?.status
    },

    async setQuantities(updates) {
      const rows = await database.query<{ petId: bigint; status: PetStatus }>(
        {
          name: 'inventory_set_quantities',
          text: `UPDATE inventory SET quantity = new.quantity
                 FROM unnest($1::bigint[], $2::integer[]) AS new (pet_id, quantity)
                 WHERE inventory.pet_id = new.pet_id
                 RETURNING inventory.pet_id AS "petId", status`,
        },
        [arrayOf(updates.map(({ petId }) => petId)), arrayOf(updates.map(({ quantity }) => quantity))],
      )
      return new Map(rows.map(({ petId, status }) => [petId, status]))
    },

    async heldAmong(petIds) {
      const rows = await database.query<{ petId: bigint }>(
        `SELECT pet_id AS "petId" FROM inventory
         WHERE pet_id = ANY ($1) AND pet_id NOT IN (
           SELECT pet_id FROM inventory WHERE pet_id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED
         )`,
        [petIds],
      )
      return new Set(rows.map(({ petId }) => petId))
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
