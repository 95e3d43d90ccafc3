import { setTimeout } from 'node:timers/promises'
import { wasRefused } from '../../database/failures.ts'
import { isPlainPostgres } from '../../database/plain-postgres.ts'
import type { Database } from '../../database/pool.ts'
import { StandbyError, type StandbyServer, standbyErrorOf } from '../../database/standby.ts'
import {
  boundsOf,
  type ChangesReader,
  changesOf,
  copyLines,
  type ListChanges,
  type ListReads,
  type ListSource,
  type ListState,
  type PrimaryListReads,
  type PrimaryPosition,
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
  TABLE_ACCESS,
  tableText,
} from './statements.ts'

/** How long to wait until the standby has replayed what the primary had written, in milliseconds. */
const REPLAY_TIMEOUT_MS = 2000

/** Minimum time to wait for each response of the standby meanwhile, in milliseconds. */
const MIN_ANSWER_MS = 250

/** How long to wait until the primary shows the commits that the standby shows, in milliseconds. */
const CONFIRM_TIMEOUT_MS = 500

/** The longest pause between two queries while waiting, in milliseconds. */
const MAX_PAUSE_MS = 10

/** Maximum number of transactions to ask the standby about. */
const MAX_DOUBTFUL = 1000

export interface StandbyReadsOptions {
  readonly primary: PrimaryListReads
  /** A pool of one connection, which `server` verifies. */
  readonly standby: Database
  readonly server: StandbyServer
}

/** What one connection has replayed before its next statement takes a snapshot. */
interface Replayed {
  readonly position: bigint
  /** Tells the connection from later ones. */
  readonly connection: number
}

/** A position of the primary. Positions of other servers are comparable if their history is equal. */
export interface PositionInHistory extends PrimaryPosition {
  /** The history of the primary's WAL. */
  readonly history: string
}

/** What the standby showed when the entries were read, or a moment later. */
interface StandbyPoint {
  readonly isStandby: boolean
  readonly snapshot: string
  readonly place: string
}

/**
 * Reads lists from a standby, which are as exact as those of the primary:
 *
 * 1. Asks the primary for its position in the WAL.
 * 2. Waits until the standby has replayed the WAL up to there, so that it shows every update that was acknowledged before.
 * 3. Reads from the standby.
 * 4. Waits until the primary shows every commit that the standby has shown, so that no later list lacks one.
 *
 * docs/decisions.md proves that this is exact. Every method rejects with a StandbyError if the list has to be read from the
 * primary, and with a DatabaseUnavailableError if the primary does not respond.
 */
export class StandbyReads {
  readonly #primary: PrimaryListReads
  readonly #standby: Database
  readonly #changes: ChangesReader
  readonly #server: StandbyServer

  constructor({ primary, standby, server }: StandbyReadsOptions) {
    this.#primary = primary
    this.#standby = standby
    this.#changes = {
      query: this.#query,
      statistics: standby.statistics,
      isPooled: standby.isPooled,
      changes: { name: 'inventory_standby_changes', text: changesText(PLACE, !standby.isPooled) },
      table: { name: 'inventory_standby_table_state', text: tableText(PLACE) },
    }
    this.#server = server
  }

  /** Returns the current position of the primary. */
  async position(): Promise<PositionInHistory> {
    const { history } = this.#server
    if (history === undefined) throw new StandbyError('unverified')
    const position = await this.#primary.position().catch((error: unknown) => {
      // A server that only speaks PostgreSQL's protocol, or a role that may not run the functions.
      throw wasRefused(error) ? new StandbyError('unverified', { cause: error }) : error
    })
    // Another primary may have taken over, or a pooler may have asked another server.
    if (!this.#server.isPrimary(position.timeline, position.startedAt)) throw new StandbyError('interrupted')
    return { ...position, history }
  }

  /** The reads of a standby that has replayed the WAL up to that position. */
  at(position: PositionInHistory): ListReads {
    return {
      lines: (onSource) => this.#lines(position, onSource),
      changesSince: (state, limit) => this.#changesSince(position, state, limit),
    }
  }

  /** Does everything that a list does, except for reading entries. */
  async check(): Promise<void> {
    const position = await this.position()
    const replayed = await this.#replay(position)
    await this.#query({ name: 'inventory_standby_table', text: TABLE_ACCESS })
    await this.#confirm(position, replayed, await this.#point())
  }

  async *#lines(
    position: PositionInHistory,
    onSource: (source: ListSource) => void,
  ): AsyncGenerator<Buffer, void, void> {
    const replayed = await this.#replay(position)
    const columns = `${PLACE}, pg_snapshot_xmin(pg_current_snapshot())::text, ${SOURCE_COLUMNS}`
    const lines = copyLines(this.#standby, columns, ([place, oldest, version, table, isComparable]) => {
      if (place !== position.place) throw new StandbyError('other_table')
      if (
        oldest == null ||
        version == null ||
        table == null ||
        isComparable !== 't' ||
        !isPlainPostgres(version)
      )
        throw new StandbyError('unsuited')
      onSource({ version, state: { ...stateAt(position, replayed), oldest: BigInt(oldest), table } })
    })
    yield* this.#translated(lines)
    await this.#confirm(position, replayed, await this.#point())
  }

  async #changesSince(
    position: PositionInHistory,
    state: ListState,
    limit: number,
  ): Promise<ListChanges | undefined> {
    if (![position.history, position.validator.source].includes(state.history)) return undefined
    const replayed = await this.#replay(position)
    const row = await queryChanges(this.#changes, state, limit)
    if (row === undefined) return undefined
    await this.#confirm(position, replayed, { ...row, place: row.source })
    return changesOf(row, state, stateAt(position, replayed))
  }

  /** Waits until the standby has replayed the WAL up to the position. */
  async #replay({ acknowledged }: PrimaryPosition): Promise<Replayed> {
    const deadline = performance.now() + REPLAY_TIMEOUT_MS
    for (let pause = 1; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      const answer = Math.max(MIN_ANSWER_MS, Math.ceil(deadline - performance.now()))
      const statement = { name: 'inventory_standby_position', text: REPLAY_POSITION, answer }
      const [row] = await this.#query<{ isStandby: boolean; replayed: string | null }>(statement)
      if (row?.isStandby !== true || row.replayed === null) throw new StandbyError('not_standby')
      const position = positionOf(row.replayed)
      if (position >= acknowledged) return { position, connection: this.#standby.statistics().opened }
      if (performance.now() > deadline) throw new StandbyError('lagging')
      await setTimeout(pause)
    }
  }

  async #point(): Promise<StandbyPoint> {
    const statement = { name: 'inventory_standby_point', text: STANDBY_POINT }
    const [row] = await this.#query<StandbyPoint>(statement)
    if (row === undefined) throw new Error('PostgreSQL has answered without a row')
    return row
  }

  /**
   * Waits until the primary shows every commit that the standby shows. A commit is in the WAL, and so on the standby, before
   * other sessions of the primary see it: a moment before, or for as long as it waits for a synchronous standby.
   */
  async #confirm(
    { validator, place }: PrimaryPosition,
    replayed: Replayed,
    point: StandbyPoint,
  ): Promise<void> {
    if (!point.isStandby) throw new StandbyError('not_standby')
    if (point.place !== place) throw new StandbyError('other_table')
    const deadline = performance.now() + CONFIRM_TIMEOUT_MS
    const { next } = boundsOf(point.snapshot)
    let { snapshot } = validator
    for (let pause = 1; mayLack(snapshot, next); pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      const latest = await this.#primary.validator()
      if (latest.source !== validator.source) throw new StandbyError('interrupted')
      snapshot = latest.snapshot
      const doubtful = doubtfulIn(snapshot, next)
      if (doubtful !== undefined && !(await this.#isAnyCommitted(doubtful))) break
      if (performance.now() > deadline) throw new StandbyError('ahead')
      await setTimeout(pause)
    }
    if (this.#standby.statistics().opened !== replayed.connection) throw new StandbyError('interrupted')
  }

  async #isAnyCommitted(transactions: readonly bigint[]): Promise<boolean> {
    if (transactions.length === 0) return false
    const statement = { name: 'inventory_standby_ahead', text: IS_AHEAD }
    const [row] = await this.#query<{ isAhead: boolean }>(statement, [`{${transactions.join()}}`])
    return row?.isAhead !== false
  }

  readonly #query: Database['query'] = async (statement, values) => {
    const { generation } = this.#server
    try {
      return await this.#standby.query(statement, values)
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

  /** The failure of a statement that began in that generation. A new one ends all connections, whatever the server does. */
  #failureOf(error: unknown, generation: number): StandbyError {
    if (generation === this.#server.generation) return standbyErrorOf(error)
    return new StandbyError('interrupted', { cause: error })
  }
}

/** Commits that the validator covers and that had not reached the primary's disk may not be on the standby yet. */
function stateAt(
  { validator, visible, history }: PositionInHistory,
  { position }: Replayed,
): Pick<ListState, 'validator' | 'history'> {
  return { validator: position >= visible ? validator : undefined, history }
}

/** Whether a snapshot of the primary may lack a commit of the transactions before `next`. */
function mayLack(snapshot: string, next: bigint): boolean {
  return doubtfulIn(snapshot, next)?.length !== 0
}

/**
 * The transactions before `next` that are in progress or have not begun by a snapshot of the primary. Undefined if there
 * are too many of them.
 */
function doubtfulIn(snapshot: string, next: bigint): bigint[] | undefined {
  const inProgress = (snapshot.split(':')[2] ?? '').split(',').filter((id) => id !== '')
  const begun = boundsOf(snapshot).next
  if (next - begun > MAX_DOUBTFUL) return undefined
  const doubtful = inProgress.map(BigInt).filter((id) => id < next)
  for (let id = begun; id < next; id++) doubtful.push(id)
  return doubtful
}
