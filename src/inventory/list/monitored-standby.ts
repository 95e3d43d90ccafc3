import { setTimeout } from 'node:timers/promises'
import type { StandbyServer } from '../../database/standby.ts'
import { StandbyError, type StandbyProblem } from '../../database/standby-problem.ts'
import type { StandbyStatistics } from '../statistics.ts'
import type { ListReads } from './reads.ts'
import { type PositionInHistory, StandbyReads, type StandbyReadsOptions } from './standby-reads.ts'

/** Interval between checks of a standby that is not in use, in milliseconds. */
const CHECK_INTERVAL_MS = 1000

/** Time without a list after which a standby in use is checked, in milliseconds. */
const IDLE_CHECK_MS = 5000

/** Problems that affect one read only, so the standby stays in use. */
const transientProblems: readonly StandbyProblem[] = ['conflict', 'interrupted']

export interface MonitoredStandbyOptions extends StandbyReadsOptions {
  readonly statistics: StandbyStatistics
  /** Called with an error when the standby is no longer used, and with undefined when it is used again. */
  readonly onChange: (problem: StandbyError | undefined) => void
}

/**
 * Reads lists from a standby as long as it can be used. After a problem that would probably affect the next list, too, the
 * standby is not used until a background check succeeds, so that no other list waits for it.
 *
 * The methods reject with the same errors as those of StandbyReads.
 */
export class MonitoredStandby {
  readonly #reads: StandbyReads
  readonly #server: StandbyServer
  readonly #statistics: StandbyStatistics
  readonly #onChange: (problem: StandbyError | undefined) => void
  readonly #closing = new AbortController()
  #problem: StandbyProblem | undefined
  #lastUse = 0
  /** Number of lists that are being read. */
  #reading = 0
  #watching: Promise<void> | undefined

  constructor({ statistics, onChange, ...options }: MonitoredStandbyOptions) {
    this.#reads = new StandbyReads(options)
    this.#server = options.server
    this.#statistics = statistics
    this.#onChange = onChange
  }

  /** Whether to read lists from the standby. */
  get isInUse(): boolean {
    return this.#statistics.isInUse
  }

  /** Starts the background checks. */
  watch(): void {
    this.#watching ??= this.#watch()
  }

  /** Stops the background checks. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#watching
  }

  /** Returns the current position of the primary. */
  position(): Promise<PositionInHistory> {
    return this.#counted(() => this.#reads.position())
  }

  /** Returns reads that wait until the standby has replayed the WAL up to `position`. */
  at(position: PositionInHistory): ListReads {
    const reads = this.#reads.at(position)
    return {
      lines: (onSource) => this.#countedLines(reads.lines(onSource)),
      changesSince: async (state, limit) => {
        this.#reading++
        try {
          const changes = await this.#counted(() => reads.changesSince(state, limit))
          if (changes !== undefined) this.#served()
          return changes
        } finally {
          this.#reading--
        }
      },
    }
  }

  async *#countedLines(lines: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    this.#reading++
    try {
      yield* lines
    } catch (error) {
      this.#failed(error)
      throw error
    } finally {
      this.#reading--
    }
    this.#served()
  }

  async #counted<Result>(read: () => Promise<Result>): Promise<Result> {
    try {
      return await read()
    } catch (error) {
      this.#failed(error)
      throw error
    }
  }

  #served(): void {
    this.#statistics.outcomes.served++
    this.#lastUse = performance.now()
  }

  /** Counts the problem, and stops using the standby unless the problem is transient. */
  #failed(error: unknown): void {
    if (!(error instanceof StandbyError)) return
    this.#statistics.outcomes[error.problem]++
    this.#giveUp(error)
  }

  async #watch(): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      if (!this.isInUse || performance.now() - this.#lastUse > IDLE_CHECK_MS) await this.#check()
      await setTimeout(CHECK_INTERVAL_MS, undefined, { ref: false, signal }).catch(() => {})
    }
  }

  async #check(): Promise<void> {
    try {
      await this.#reads.check()
    } catch (error) {
      // An error of the primary says nothing about the standby. A list that is being read uses the only connection, maybe for
      // longer than the check waits for it, and finds out itself whether the standby can be used.
      if (error instanceof StandbyError && this.#reading === 0) this.#giveUp(error)
      return
    }
    this.#lastUse = performance.now()
    if (this.isInUse || this.#closing.signal.aborted) return
    this.#statistics.isInUse = true
    this.#problem = undefined
    this.#onChange(undefined)
  }

  #giveUp(error: StandbyError): void {
    if (transientProblems.includes(error.problem)) return
    this.#statistics.isInUse = false
    // Another host of the address may be a standby, or the address may lead to another server by the next check.
    this.#server.skip(this.#server.host)
    this.#server.renew()
    if (this.#problem === error.problem || this.#closing.signal.aborted) return
    this.#problem = error.problem
    this.#onChange(error)
  }
}
