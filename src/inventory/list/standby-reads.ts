import { setTimeout } from 'node:timers/promises'
import { wasRefused } from '../../database/failures.ts'
import { isPlainPostgres } from '../../database/plain-postgres.ts'
import type { Database } from '../../database/pool.ts'
import {
  StandbyError,
  type StandbyProblem,
  type StandbyServer,
  standbyErrorOf,
} from '../../database/standby.ts'
import type { StandbyStatistics } from '../statistics.ts'
import {
  boundsOf,
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
import { changesText, IS_AHEAD, PLACE, REPLAY_POSITION, STANDBY_POINT, TABLE_ACCESS } from './statements.ts'

/** How long to wait until the standby has replayed what the primary had written, in milliseconds. */
const REPLAY_TIMEOUT_MS = 2000

/** How long to wait for each answer of the standby meanwhile at the least, in milliseconds. */
const MIN_ANSWER_MS = 250

/** How long to wait until the primary shows the commits that the standby shows, in milliseconds. */
const CONFIRM_TIMEOUT_MS = 500

/** The longest pause between two questions, in milliseconds. */
const MAX_PAUSE_MS = 10

/** How often a standby that is not in use is checked, in milliseconds. */
const CHECK_INTERVAL_MS = 1000

/** After how long without a list a standby that is in use is checked, in milliseconds. */
const IDLE_CHECK_MS = 5000

/** The most transactions of which the standby is asked whether they are committed there. */
const MAX_DOUBTFUL = 1000

/** Problems of a single read: the next one is as likely to succeed as if there had been none. */
const passingProblems: readonly StandbyProblem[] = ['conflict', 'interrupted']

export interface StandbyReadsOptions {
  readonly primary: PrimaryListReads
  /** A pool of one connection, which `server` verifies. */
  readonly standby: Database
  readonly server: StandbyServer
  readonly statistics: StandbyStatistics
  /** Called without a problem when lists are read from the standby again, and with the problem when they no longer are. */
  readonly onChange: (problem: StandbyError | undefined) => void
}

/** What one connection has replayed before its next statement takes a snapshot. */
interface Replayed {
  readonly position: bigint
  /** Tells the connection from later ones. */
  readonly connection: number
}

/** A position of the primary, with what positions of another server have to share for a comparison. */
export interface PositionInHistory extends PrimaryPosition {
  /** Which history the WAL of the primary has. */
  readonly history: string
}

/** What the standby showed when the entries were read, or a moment later. */
interface StandbyPoint {
  readonly isStandby: boolean
  readonly snapshot: string
  readonly place: string
}

/**
 * Reads lists from a standby that are as exact as those of the primary. The primary is asked for its position first; the
 * standby reads once it has replayed the WAL up to there, so that it shows every update that was acknowledged before. In
 * the end the primary has to show whatever the standby has shown, so that no later list lacks it. docs/decisions.md has the
 * argument.
 *
 * Everything raises StandbyError where the primary has to be read instead, and DatabaseUnavailableError where the primary
 * itself cannot be asked. A standby that cannot be used is not asked again before a check in the background has found that
 * it can.
 */
export class StandbyReads {
  readonly #primary: PrimaryListReads
  readonly #standby: Database
  readonly #server: StandbyServer
  readonly #statistics: StandbyStatistics
  readonly #onChange: (problem: StandbyError | undefined) => void
  readonly #closing = new AbortController()
  #problem: StandbyProblem | undefined
  #lastUse = 0
  #watching: Promise<void> | undefined

  constructor({ primary, standby, server, statistics, onChange }: StandbyReadsOptions) {
    this.#primary = primary
    this.#standby = standby
    this.#server = server
    this.#statistics = statistics
    this.#onChange = onChange
  }

  /** Whether lists are to be read from the standby. */
  get isInUse(): boolean {
    return this.#statistics.isInUse
  }

  /** Begins to check the standby in the background. */
  watch(): void {
    this.#watching ??= this.#watch()
  }

  /** Ends the checks. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#watching
  }

  /** Where the primary stands now. */
  async position(): Promise<PositionInHistory> {
    try {
      return await this.#position()
    } catch (error) {
      throw this.#noted(error)
    }
  }

  /** The reads of a standby that has replayed the WAL up to that position. */
  at(position: PositionInHistory): ListReads {
    return {
      lines: (onSource) => this.#lines(position, onSource),
      changesSince: (state, limit) => this.#changesSince(position, state, limit),
    }
  }

  async #position(): Promise<PositionInHistory> {
    const { history } = this.#server
    if (history === undefined) throw new StandbyError('unverified')
    const position = await this.#primary.position().catch((error: unknown) => {
      // A server that only speaks PostgreSQL's language, or a role that may not ask.
      throw wasRefused(error) ? new StandbyError('unverified', { cause: error }) : error
    })
    // Another primary may have taken over, or a pooler may have asked another server.
    if (!this.#server.isPrimary(position.timeline, position.startedAt)) throw new StandbyError('interrupted')
    return { ...position, history }
  }

  async *#lines(
    position: PositionInHistory,
    onSource: (source: ListSource) => void,
  ): AsyncGenerator<Buffer, void, void> {
    try {
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
        onSource({
          version,
          state: { ...stateAt(position, replayed), oldest: BigInt(oldest), table },
        })
      })
      yield* this.#translated(lines)
      await this.#confirm(position, replayed, await this.#point())
    } catch (error) {
      throw this.#noted(error)
    }
    this.#served()
  }

  async #changesSince(
    position: PositionInHistory,
    state: ListState,
    limit: number,
  ): Promise<ListChanges | undefined> {
    if (![position.history, position.validator.source].includes(state.history)) return undefined
    try {
      const replayed = await this.#replay(position)
      const statement = { name: 'inventory_standby_changes', text: changesText(PLACE) }
      const row = await queryChanges(this.#query, statement, state, limit)
      if (row === undefined) return undefined
      const changes = changesOf(row, state, stateAt(position, replayed), limit)
      if (changes === undefined) return undefined
      await this.#confirm(position, replayed, { ...row, place: row.source })
      this.#served()
      return changes
    } catch (error) {
      throw this.#noted(error)
    }
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
   * other sessions of the primary see it: a moment before, or, where it waits for a synchronous standby, for as long as
   * that takes.
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

  async #watch(): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      if (!this.isInUse || performance.now() - this.#lastUse > IDLE_CHECK_MS) await this.#check()
      await setTimeout(CHECK_INTERVAL_MS, undefined, { ref: false, signal }).catch(() => {})
    }
  }

  /** Does all that a list does but reading entries. */
  async #check(): Promise<void> {
    try {
      const position = await this.#position()
      const replayed = await this.#replay(position)
      await this.#query({ name: 'inventory_standby_table', text: TABLE_ACCESS })
      await this.#confirm(position, replayed, await this.#point())
    } catch (error) {
      // Where the primary cannot be asked, nothing is known of the standby.
      if (error instanceof StandbyError) this.#giveUp(error)
      return
    }
    this.#lastUse = performance.now()
    if (this.isInUse || this.#closing.signal.aborted) return
    this.#statistics.isInUse = true
    this.#problem = undefined
    this.#onChange(undefined)
  }

  #served(): void {
    this.#statistics.outcomes.served++
    this.#lastUse = performance.now()
  }

  /** Counts why a list was not read from the standby, and gives it up where the next one would fare no better. */
  #noted(error: unknown): unknown {
    if (!(error instanceof StandbyError)) return error
    this.#statistics.outcomes[error.problem]++
    this.#giveUp(error)
    return error
  }

  #giveUp(error: StandbyError): void {
    if (passingProblems.includes(error.problem)) return
    this.#statistics.isInUse = false
    // Another host of the address may do, and the address may lead to another server by the next check.
    this.#server.skip(this.#server.host)
    this.#server.renew()
    if (this.#problem === error.problem || this.#closing.signal.aborted) return
    this.#problem = error.problem
    this.#onChange(error)
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
 * The transactions before `next` that are in progress or have not begun by a snapshot of the primary. Undefined where there
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
