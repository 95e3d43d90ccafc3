import { onlyRow } from '../../../database/only-row.ts'
import type { Pool } from '../../../database/pool.ts'
import type { NamedStatement, TextRow, Value } from '../../../database/statement.ts'
import { hasReason, StatementError } from '../../../database/statement-error.ts'
import { type Chunk, ENTRIES_PER_CHUNK, makeChunk } from '../serialized/chunks.ts'
import { ALL_ENTRIES, changesText, chunksText, validatorText } from './list-statements.ts'

/**
 * Identifies the committed state that a list was read from. If two validators are equal, nothing was committed in between,
 * and the table's name resolves to the same table.
 */
export interface ListValidator {
  /**
   * Identifies the server's start or its recovery from a crash, and the table that its name resolves to in this session.
   * Transaction ids of two states are comparable only if their sources are equal.
   */
  readonly source: string
  /** Identifies the transactions that have ended: `pg_current_snapshot()` as text (PostgreSQL manual, section 9.27.8). */
  readonly snapshot: string
}

/** The state that a list was read from, with everything that is needed to find later changes. */
export interface ListState extends ListValidator {
  /** Identifies the definition of the table. If it is equal, an unchanged row has the same JSON text. */
  readonly table: string
}

/** All entries as of one moment. */
export interface WholeList {
  readonly chunks: readonly Chunk[]
  /** Undefined if changes of the table cannot be detected reliably. */
  readonly state: ListState | undefined
}

/** How a list differs from an earlier one. */
export interface ListChanges {
  readonly state: ListState
  /** All entries of the list, not only the changed ones. */
  readonly count: number
  /** The entries that are new or may have changed, in ascending petId, one per line. The last line has no newline. */
  readonly lines: string
}

interface ValidatorRow extends ListValidator {
  readonly backend: string | number
  readonly isReadOnly: boolean
}

interface ChangesRow extends ValidatorRow {
  readonly table: string | null
  /** Whether the row has all changes if the table is the same. */
  readonly isExact: boolean
  readonly count: bigint
  readonly changed: number
  readonly lines: string | null
}

/**
 * Maximum transactions between two states that are compared. Row versions store the lower 32 bits of a transaction id, so PostgreSQL
 * can order only ids that are less than 2^31 apart.
 */
const MAX_TRANSACTION_AGE = 2n ** 30n

export type ListReader = ReturnType<typeof listReader>

/** Creates what reads entries. Every method rejects with a StatementError if its statement fails. */
export function listReader(lists: Pool) {
  const { backend } = lists
  const validator = { name: 'inventory_list_validator', text: validatorText(backend) }
  const changes = { name: 'inventory_list_changes', text: changesText(backend) }
  const chunks = chunksText(backend)

  const countEpoch = epochCounter(lists)

  const toValidator = ({ source, backend, snapshot }: Omit<ValidatorRow, 'isReadOnly'>): ListValidator => ({
    source: `${source} ${countEpoch(backend)}`,
    snapshot,
  })

  /** Returns the only row. Rejects if the server is read-only: other processes may already be sending updates to another one. */
  const readRow = async <Row extends ValidatorRow>(statement: NamedStatement, ...values: Value[]) => {
    const row = onlyRow(await lists.query<Row>(statement, values))
    if (row.isReadOnly) throw lists.discardReadOnly()
    return row
  }

  /** Reads the chunks and their state in one statement. There are none without a state. */
  const readChunks = async (
    former: readonly Chunk[],
  ): Promise<WholeList & { readonly hasCitus: boolean }> => {
    const read: Chunk[] = []
    let first: TextRow = []
    await lists.readRows(chunks, (row) => {
      if (first.length === 0) first = row
      const [count, text] = row.slice(-2)
      if (text != null) read.push(makeChunk(text, Number(count), read.length, former[read.length]))
    })
    const [source, backend, snapshot, isReadOnly, table, isExact, hasCitus] = first
    if (isReadOnly === 't') throw lists.discardReadOnly()
    const isKnown = source != null && backend != null && snapshot != null && table != null && isExact === 't'
    const state = isKnown ? { ...toValidator({ source, backend, snapshot }), table } : undefined
    return { chunks: read, state, hasCitus: hasCitus === 't' }
  }

  /** Reads a list of Citus, one row for each entry. */
  const readEntries = async (former: readonly Chunk[]): Promise<Chunk[]> => {
    const read: Chunk[] = []
    let texts: string[] = []
    const cut = (): void => {
      if (texts.length > 0) read.push(makeChunk(texts.join(), texts.length, read.length, former[read.length]))
      texts = []
    }
    await lists.readRows(ALL_ENTRIES, ([entry]) => {
      texts.push(entry ?? '')
      if (texts.length === ENTRIES_PER_CHUNK) cut()
    })
    cut()
    return read
  }

  /** Returns the validator of a list read now. Reads no table, so it does not wait for locks. */
  const readValidator = async (): Promise<ListValidator> =>
    toValidator(await readRow<ValidatorRow>(validator))

  return {
    validator: readValidator,

    /** Reads all entries. Chunks of `former` replace equal ones. Rejects if the table is not as the migrations make it. */
    async readAll(former: readonly Chunk[]): Promise<WholeList> {
      const whole = await readChunks(former).catch(undefinedIfUnsupported)
      if (whole?.state !== undefined) return whole
      if (whole?.hasCitus === false)
        throw new StatementError(
          new Error('the table inventory is not as the migrations make it, or row security applies to it'),
          'rolledBack',
          'unsupported',
        )
      const read = await readEntries(former)
      // The server may have become read-only.
      await readValidator()
      return { chunks: read, state: undefined }
    },

    /**
     * Reads the entries that were written since `state`, and counts all entries, in one statement. Removed entries are not
     * reported. Returns undefined if the changes are unknown or more than `limit`.
     */
    async changesSince(state: ListState, limit: number): Promise<ListChanges | undefined> {
      const since = parseSnapshot(state.snapshot).xmin
      const row = await readRow<ChangesRow>(changes, BigInt.asUintN(32, since), limit)
      const areKnown =
        row.isExact && parseSnapshot(row.snapshot).xmax - since < MAX_TRANSACTION_AGE && row.changed <= limit
      const latest = toValidator(row)
      if (!areKnown || row.table !== state.table || latest.source !== state.source) return undefined
      return { state: { ...latest, table: state.table }, count: Number(row.count), lines: row.lines ?? '' }
    },
  }
}

/**
 * Returns a function that returns the epoch of a server process: between two statements of the same epoch, the server has not crashed.
 * After a crash, the postmaster restarts all server processes but keeps its start time, and PostgreSQL may reuse the ids of transactions
 * that had not committed. A process that ran an earlier statement proves that there was no crash since; any other one begins the next
 * epoch.
 */
function epochCounter(lists: Pool): (backend: string | number) => number {
  /** The known server processes, each with the number of connections opened until then, as a process id may recur. */
  const processes = new Set<string>()
  let epoch = 0
  return (backend) => {
    const process = `${backend} ${lists.statistics().opened}`
    if (!processes.has(process)) {
      epoch++
      // A connection pooler replaces its connections from time to time.
      if (processes.size === 1000) processes.clear()
      processes.add(process)
    }
    return epoch
  }
}

/** Citus refuses the statement for a distributed table, before it reads anything. */
function undefinedIfUnsupported(error: unknown): undefined {
  if (!hasReason(error, 'unsupported')) throw error
}

/**
 * Returns the bounds in the text of a snapshot: all transactions before `xmin` have ended, and none from `xmax` on has
 * (PostgreSQL manual, section 9.27.8).
 */
function parseSnapshot(snapshot: string): { xmin: bigint; xmax: bigint } {
  const [xmin = '', xmax = ''] = snapshot.split(':')
  return { xmin: BigInt(xmin), xmax: BigInt(xmax) }
}
