import { setTimeout } from 'node:timers/promises'
import { StandbyError, type StandbyProblem, type StandbyServer } from '../../database/standby.ts'
import type { StandbyStatistics } from '../statistics.ts'
import type { ListReads } from './reads.ts'
import { type PositionInHistory, StandbyReads, type StandbyReadsOptions } from './standby-reads.ts'

/** Interval between checks of a standby that is not in use, in milliseconds. */
const CHECK_INTERVAL_MS = 1000

/** A standby in use is checked after this time without a list, in milliseconds. */
const IDLE_CHECK_MS = 5000

/** Problems of a single read: the next read is as likely to succeed as any. */
const passingProblems: readonly StandbyProblem[] = ['conflict', 'interrupted']

export interface MonitoredStandbyOptions extends StandbyReadsOptions {
  readonly statistics: StandbyStatistics
  /** Called with the problem when the standby is no longer used, and without one when it is used again. */
  readonly onChange: (problem: StandbyError | undefined) => void
}

/**
 * Reads lists from a standby as long as that works. After a problem that the next list would meet as well, the standby is not
 * used until a background check succeeds, so that only one list waits for it.
 *
 * Reads reject with the errors of StandbyReads.
 */
export class MonitoredStandby {
  readonly #reads: StandbyReads
  readonly #server: StandbyServer
  readonly #statistics: StandbyStatistics
  readonly #onChange: (problem: StandbyError | undefined) => void
  readonly #closing = new AbortController()
  #problem: StandbyProblem | undefined
  #lastUse = 0
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

  /** The reads of a standby that has replayed the WAL up to that position. */
  at(position: PositionInHistory): ListReads {
    const reads = this.#reads.at(position)
    return {
      lines: (onSource) => this.#countedLines(reads.lines(onSource)),
      changesSince: async (state, limit) => {
        const changes = await this.#counted(() => reads.changesSince(state, limit))
        if (changes !== undefined) this.#served()
        return changes
      },
    }
  }

  async *#countedLines(lines: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    try {
      yield* lines
    } catch (error) {
      this.#failed(error)
      throw error
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

  /** Counts the problem, and stops using the standby if the next list would meet it as well. */
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
      // If the primary does not respond, nothing is known about the standby.
      if (error instanceof StandbyError) this.#giveUp(error)
      return
    }
    this.#lastUse = performance.now()
    if (this.isInUse || this.#closing.signal.aborted) return
    this.#statistics.isInUse = true
    this.#problem = undefined
    this.#onChange(undefined)
  }

  #giveUp(error: StandbyError): void {
    if (passingProblems.includes(error.problem)) return
    this.#statistics.isInUse = false
    // Another host of the address may be a standby, or the address may lead to another server by the next check.
    this.#server.skip(this.#server.host)
    this.#server.renew()
    if (this.#problem === error.problem || this.#closing.signal.aborted) return
    this.#problem = error.problem
    this.#onChange(error)
  }
}
