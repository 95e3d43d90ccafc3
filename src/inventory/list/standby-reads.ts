import { setTimeout } from 'node:timers/promises'
import { wasRefused } from '../../database/failures.ts'
import { onlyRow } from '../../database/only-row.ts'
import { isPlainPostgres } from '../../database/plain-postgres.ts'
import type { Database } from '../../database/pool.ts'
import type { StandbyServer } from '../../database/standby.ts'
import { StandbyError, standbyErrorOf } from '../../database/standby-problem.ts'
import type { PrimaryListReads, PrimaryPosition } from './primary-reads.ts'
import {
  boundsOf,
  type ChangesReader,
  changesOf,
  copyLines,
  type ListChanges,
  type ListReads,
  type ListSource,
  type ListState,
  positionOf,
  queryChanges,
  SOURCE_COLUMNS,
} from './reads.ts'
import {
  changesText,
  IS_AHEAD,
  PLACE,
  REPLAY_POSITION,
  STANDBY_POINT,
  TABLE_SUITABILITY,
  tableText,
} from './statements.ts'

/** How long to wait until the standby has replayed the WAL up to the primary's position, in milliseconds. */
const REPLAY_TIMEOUT_MS = 2000

/** Minimum time limit for each of the standby's responses during this wait, in milliseconds. */
const MIN_RESPONSE_TIMEOUT_MS = 250

/** How long to wait until all commits that are visible on the standby are visible on the primary, in milliseconds. */
const CONFIRM_TIMEOUT_MS = 500

/** Maximum pause between two queries of a wait, in milliseconds. */
const MAX_PAUSE_MS = 10

/** Maximum number of transactions whose status is queried on the standby. */
const MAX_UNCONFIRMED = 1000

export interface StandbyReadsOptions {
  readonly primary: PrimaryListReads
  /** A pool with a single connection, which `server` verifies. */
  readonly pool: Database
  readonly server: StandbyServer
}

/** How far the standby has replayed the WAL, measured on a connection before its next statement takes a snapshot. */
interface Replayed {
  readonly position: bigint
  /** Number of connections that the pool had opened. If it has grown, the connection was replaced. */
  readonly connection: number
}

/** A position of the primary. Positions are comparable only if their histories are equal. */
export interface PositionInHistory extends PrimaryPosition {
  /** Identifies the history of the primary's WAL. */
  readonly history: string
}

/** What the standby reports about itself and the table. */
interface StandbyTable {
  readonly version: string
  readonly isComparable: boolean
}

/** The standby's state when the entries were read, or a moment later. */
interface StandbyPoint {
  readonly isStandby: boolean
  readonly snapshot: string
  readonly place: string
}

/**
 * Reads lists from a standby that are as exact as those from the primary:
 *
 * 1. Ask the primary for its position in the WAL.
 * 2. Wait until the standby has replayed the WAL up to this position, so that all updates acknowledged before are visible.
 * 3. Read from the standby.
 * 4. Wait until all commits that were visible on the standby are visible on the primary, so that no later list lacks them.
 *
 * docs/decisions.md proves that this is exact. Every method rejects with a StandbyError if the list must be read from the
 * primary, and with a DatabaseUnavailableError if the primary is unavailable.
 */
export class StandbyReads {
  readonly #primary: PrimaryListReads
  readonly #pool: Database
  readonly #changes: ChangesReader
  readonly #server: StandbyServer

  constructor({ primary, pool, server }: StandbyReadsOptions) {
    this.#primary = primary
    this.#pool = pool
    this.#changes = {
      query: this.#query,
      statistics: pool.statistics,
      isPooled: pool.isPooled,
      changes: { name: 'inventory_standby_changes', text: changesText(PLACE, !pool.isPooled) },
      table: { name: 'inventory_standby_table_state', text: tableText(PLACE) },
    }
    this.#server = server
  }

  /** Returns the current position of the primary. */
  async position(): Promise<PositionInHistory> {
    const position = await this.#primary.position().catch((error: unknown) => {
      // The server lacks the functions because it is not PostgreSQL, or the role may not run them.
      throw wasRefused(error) ? new StandbyError('unverified', { cause: error }) : error
    })
    // Read after the statement, which may have opened a connection to another server, or to the same one after a restart.
    const { history } = this.#server
    if (history === undefined) throw new StandbyError('unverified')
    // After a failover, or behind a pooler, another server may have run the statement.
    if (!this.#server.isPrimary(position.timeline, position.startedAt)) throw new StandbyError('interrupted')
    return { ...position, history }
  }

  /** Returns reads that wait until the standby has replayed the WAL up to `position`. */
  at(position: PositionInHistory): ListReads {
    return {
      lines: (onSource) => this.#lines(position, onSource),
      changesSince: (state, limit) => this.#changesSince(position, state, limit),
    }
  }

  /** Performs every step of a list except for reading entries. Rejects if a list could not be read now. */
  async check(): Promise<void> {
    const position = await this.position()
    const replayed = await this.#replay(position.acknowledged)
    const [table] = await this.#query<StandbyTable>({
      name: 'inventory_standby_table',
      text: TABLE_SUITABILITY,
    })
    if (table?.isComparable !== true || !isPlainPostgres(table.version)) throw new StandbyError('unsuited')
    await this.#confirm(position, replayed, await this.#point())
  }

  async *#lines(
    position: PositionInHistory,
    onSource: (source: ListSource) => void,
  ): AsyncGenerator<Buffer, void, void> {
    const replayed = await this.#replay(position.acknowledged)
    const columns = `${PLACE}, pg_snapshot_xmin(pg_current_snapshot())::text, ${SOURCE_COLUMNS}`
    const lines = copyLines(this.#pool, columns, ([place, xmin, version, table, isComparable]) => {
      if (place !== position.place) throw new StandbyError('other_table')
      if (
        xmin == null ||
        version == null ||
        table == null ||
        isComparable !== 't' ||
        !isPlainPostgres(version)
      )
        throw new StandbyError('unsuited')
      onSource({ version, state: { ...stateAt(position, replayed), xmin: BigInt(xmin), table } })
    })
    yield* this.#translated(lines)
    await this.#confirm(position, replayed, await this.#point())
  }

  async #changesSince(
    position: PositionInHistory,
    state: ListState,
    limit: number,
  ): Promise<ListChanges | undefined> {
    const { history, validator, acknowledged, visible } = position
    if (state.history !== history && state.history !== validator.source) return undefined
    // A list from the primary may have commits that are not on its disk and that a crash would undo. The next state does not
    // depend on the connection, so the standby must have all of them.
    const replayed = await this.#replay(state.history === history ? acknowledged : visible)
    const row = await queryChanges(this.#changes, state, limit)
    if (row === undefined) return undefined
    await this.#confirm(position, replayed, { ...row, place: row.source })
    return changesOf(row, state, stateAt(position, replayed))
  }

  /** Waits until the standby has replayed the WAL up to `target`. */
  async #replay(target: bigint): Promise<Replayed> {
    const deadline = performance.now() + REPLAY_TIMEOUT_MS
    for (let pause = 1; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      const answer = Math.max(MIN_RESPONSE_TIMEOUT_MS, Math.ceil(deadline - performance.now()))
      const statement = { name: 'inventory_standby_position', text: REPLAY_POSITION, answer }
      const [row] = await this.#query<{ isStandby: boolean; replayed: string | null }>(statement)
      if (row?.isStandby !== true || row.replayed === null) throw new StandbyError('not_standby')
      const position = positionOf(row.replayed)
      if (position >= target) return { position, connection: this.#pool.statistics().opened }
      if (performance.now() > deadline) throw new StandbyError('lagging')
      await setTimeout(pause)
    }
  }

  async #point(): Promise<StandbyPoint> {
    const statement = { name: 'inventory_standby_point', text: STANDBY_POINT }
    return onlyRow(await this.#query<StandbyPoint>(statement))
  }

  /**
   * Waits until all commits that are visible on the standby are visible on the primary. The standby can show a commit
   * first: the primary writes it to the WAL before other sessions see it, usually a moment before, but if the commit waits
   * for a synchronous standby, for as long as that takes.
   */
  async #confirm(
    { validator, place }: PrimaryPosition,
    replayed: Replayed,
    point: StandbyPoint,
  ): Promise<void> {
    if (!point.isStandby) throw new StandbyError('not_standby')
    if (point.place !== place) throw new StandbyError('other_table')
    const deadline = performance.now() + CONFIRM_TIMEOUT_MS
    const { xmax } = boundsOf(point.snapshot)
    let { snapshot } = validator
    for (let pause = 1; mayLackCommits(snapshot, xmax); pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      const latest = await this.#primary.validator()
      if (latest.source !== validator.source) throw new StandbyError('interrupted')
      snapshot = latest.snapshot
      const unconfirmed = unconfirmedIn(snapshot, xmax)
      if (unconfirmed !== undefined && !(await this.#isAnyCommitted(unconfirmed))) break
      if (performance.now() > deadline) throw new StandbyError('ahead')
      await setTimeout(pause)
    }
    if (this.#pool.statistics().opened !== replayed.connection) throw new StandbyError('interrupted')
  }

  /** Whether any of these transactions is committed on the standby, or may be. */
  async #isAnyCommitted(transactions: readonly bigint[]): Promise<boolean> {
    if (transactions.length === 0) return false
    const statement = { name: 'inventory_standby_ahead', text: IS_AHEAD }
    const [row] = await this.#query<{ isAhead: boolean }>(statement, [`{${transactions.join()}}`])
    return row?.isAhead !== false
  }

  readonly #query: Database['query'] = async (statement, values) => {
    const { generation } = this.#server
    try {
      return await this.#pool.query(statement, values)
    } catch (error) {
      throw this.#failureOf(error, generation)
    }
  }

  async *#translated(lines: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    const { generation } = this.#server
    try {
      yield* lines
    } catch (error) {
      throw this.#failureOf(error, generation)
    }
  }

  /**
   * Converts an error of a statement that began in `generation`. If a new generation has begun since, the connection was
   * closed for that reason, and the error says nothing about the standby.
   */
  #failureOf(error: unknown, generation: number): StandbyError {
    if (generation === this.#server.generation) return standbyErrorOf(error)
    return new StandbyError('interrupted', { cause: error })
  }
}

/**
 * Returns the state of a list from the standby. It has no validator if the standby may lack commits that the validator
 * covers, because they had not reached the primary's disk.
 */
function stateAt(
  { validator, visible, history }: PositionInHistory,
  { position }: Replayed,
): Pick<ListState, 'validator' | 'history'> {
  return { validator: position >= visible ? validator : undefined, history }
}

/** Whether a snapshot of the primary may lack commits of transactions before `xmax`. */
function mayLackCommits(snapshot: string, xmax: bigint): boolean {
  return unconfirmedIn(snapshot, xmax)?.length !== 0
}

/**
 * Returns the transactions before `xmax` that have not ended in a snapshot of the primary. Returns undefined if there are
 * too many.
 */
function unconfirmedIn(snapshot: string, xmax: bigint): bigint[] | undefined {
  const inProgress = (snapshot.split(':')[2] ?? '').split(',').filter((id) => id !== '')
  const primaryXmax = boundsOf(snapshot).xmax
  if (xmax - primaryXmax > MAX_UNCONFIRMED) return undefined
  const unconfirmed = inProgress.map(BigInt).filter((id) => id < xmax)
  for (let id = primaryXmax; id < xmax; id++) unconfirmed.push(id)
  return unconfirmed
}
