import type { TextRow } from '../../database/copy-out.ts'
import { onlyRow } from '../../database/only-row.ts'
import { isPlainPostgres } from '../../database/plain-postgres.ts'
import type { Database } from '../../database/pool.ts'
import { IS_READ_ONLY } from '../../database/server-status.ts'
import {
  boundsOf,
  type ChangesReader,
  changesOf,
  copyLines,
  type ListReads,
  type ListSource,
  type ListState,
  type ListValidator,
  positionOf,
  queryChanges,
  SOURCE_COLUMNS,
  type ValidatorRow,
} from './reads.ts'
import { changesText, positionText, SNAPSHOT, sourceText, tableText } from './statements.ts'

/** The primary's validator and WAL positions, which determine how far a standby must have replayed the WAL for an exact list. */
export interface PrimaryPosition {
  readonly validator: ListValidator
  /** The position that follows every acknowledged commit. */
  readonly acknowledged: bigint
  /** The position that follows every commit that the validator covers. */
  readonly visible: bigint
  /** Identifies the database and the table that the table's name resolves to. */
  readonly place: string
  /** As in `ServerIdentity`. */
  readonly timeline: number
  /** As in `ServerIdentity`. */
  readonly startedAt: string
}

/** Reads entries from the primary. */
export interface PrimaryListReads extends ListReads {
  /** Returns the validator of a list read now. Reads no table, so it does not wait for locks. */
  validator(): Promise<ListValidator>

  /** Whether the transaction ids of the state are comparable with those of the server that the validator comes from. */
  sharesHistory(state: ListState, validator: ListValidator): boolean

  /** Returns the validator and the WAL positions, in one statement. Does not wait for locks. */
  position(): Promise<PrimaryPosition>
}

interface PositionRow extends ValidatorRow {
  readonly place: string
  readonly flushed: string | null
  readonly inserted: string | null
  readonly pageSize: number
  readonly fileSize: bigint
  readonly timeline: string | null
  readonly startedAt: string
  readonly isAsynchronous: boolean
}

/** Sizes of the headers of WAL pages, in bytes (PostgreSQL's `xlog_internal.h`): of the first page of a file, and of any other. */
const FILE_HEADER = 40n
const PAGE_HEADER = 24n

/**
 * Returns where the last WAL record ends, as a standby reports it. The primary reports where the next one begins: after the
 * header of the next page, if the last record ends with its page.
 */
function endOfRecords(inserted: bigint, pageSize: bigint, fileSize: bigint): bigint {
  if (inserted % fileSize === FILE_HEADER) return inserted - FILE_HEADER
  return inserted % pageSize === PAGE_HEADER ? inserted - PAGE_HEADER : inserted
}

/**
 * Returns reads from the primary over one pool.
 *
 * @param history returns the WAL history of the primary in use, or undefined if it is unknown
 */
export function primaryListReads(
  lists: Database,
  history: () => string | undefined = () => undefined,
): PrimaryListReads {
  const source = sourceText(lists)
  const changes: ChangesReader = {
    query: lists.query,
    statistics: lists.statistics,
    isPooled: lists.isPooled,
    changes: { name: 'inventory_list_changes', text: changesText(source, !lists.isPooled) },
    table: { name: 'inventory_list_table', text: tableText(source) },
  }
  /**
   * Returns a validator that includes the number of connections opened so far. After a crash, the postmaster restarts all
   * server processes but keeps its start time, PostgreSQL may reuse the ids of transactions that had not committed, and a
   * new connection may get the same process id.
   */
  const validatorOf = (text: string, snapshot: string, isReadOnly: boolean): ListValidator => {
    // If this server is read-only, other processes may already be sending their updates to another one.
    if (isReadOnly) throw lists.refuseServer()
    return { source: `${text} ${lists.statistics().opened} ${lists.generation()}`, snapshot }
  }
  const sourceIn = ([text, snapshot, isReadOnly, version, table, isComparable]: TextRow): ListSource => {
    if (text == null || snapshot == null || version == null)
      throw new Error('PostgreSQL did not report the source of the list')
    const validator = validatorOf(text, snapshot, isReadOnly === 't')
    const isExact = isComparable === 't' && table != null && isPlainPostgres(version)
    const { xmin } = boundsOf(snapshot)
    return { version, state: isExact ? { validator, xmin, history: validator.source, table } : undefined }
  }

  const sharesHistory = (state: ListState, validator: ListValidator): boolean =>
    state.history === validator.source || state.history === history()

  return {
    sharesHistory,

    lines: (onSource) =>
      copyLines(lists, `${source}, ${SNAPSHOT}, ${IS_READ_ONLY}, ${SOURCE_COLUMNS}`, (row) =>
        onSource(sourceIn(row)),
      ),

    async changesSince(state, limit) {
      const row = await queryChanges(changes, state, limit)
      if (row === undefined) return undefined
      const validator = validatorOf(row.source, row.snapshot, row.isReadOnly)
      if (!sharesHistory(state, validator)) return undefined
      return changesOf(row, state, { validator, history: validator.source })
    },

    async validator() {
      const rows = await lists.query<ValidatorRow>({
        name: 'inventory_list_validator',
        text: `SELECT ${source} AS source, ${SNAPSHOT} AS snapshot, ${IS_READ_ONLY} AS "isReadOnly"`,
      })
      const row = onlyRow(rows)
      return validatorOf(row.source, row.snapshot, row.isReadOnly)
    },

    async position() {
      const text = positionText(source)
      const row = onlyRow(await lists.query<PositionRow>({ name: 'inventory_list_position', text }))
      const { place, flushed, inserted, pageSize, fileSize, timeline, startedAt, isAsynchronous } = row
      const validator = validatorOf(row.source, row.snapshot, row.isReadOnly)
      if (flushed === null || inserted === null || timeline === null) throw lists.refuseServer()
      const visible = endOfRecords(positionOf(inserted), BigInt(pageSize), fileSize)
      return {
        validator,
        acknowledged: isAsynchronous ? visible : positionOf(flushed),
        visible,
        place,
        timeline: Number.parseInt(timeline, 16),
        startedAt,
      }
    },
  }
}
